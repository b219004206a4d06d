-- schedules_fire: appends what is due to its partitions, in the order of due times and then of ids, and takes it out here.
-- $1 from_at timestamptz (nothing that waits is due before), $2 partition_ids bigint[], $3 messages bigint[] (of each of them, at
-- most), $4 bytes bigint (of all together, at most: nothing goes if the first alone is larger)
-- A row per partition: where its messages begin, how many there are, and how late each is in microseconds. No row: somebody
-- else was faster, or holds the partitions.
-- What is deleted is what is appended: of two who take the same row, one gets it.
-- What was sealed is moved as it is; its data key is told how far it is needed from then on.
-- Locks: the caller holds the partitions' rows, which partitions_lock has left in laneway.locked.
WITH due AS MATERIALIZED (
    SELECT schedule_id
    FROM (
        SELECT first.schedule_id, sum(first.bytes) OVER (ORDER BY first.due_at, first.schedule_id) AS bytes_up_to_it
        FROM unnest($2::bigint[], $3::bigint[]) AS asked (partition_id, messages)
        CROSS JOIN LATERAL (
            SELECT
                s.schedule_id, s.due_at,
                octet_length(s.payload) + coalesce(octet_length(s.key), 0) + coalesce(octet_length(s.headers), 0) AS bytes
            FROM laneway.schedule s
            WHERE s.partition_id = asked.partition_id AND s.due_at >= $1 AND s.due_at <= statement_timestamp()
            ORDER BY s.due_at, s.schedule_id
            LIMIT asked.messages
        ) AS first
        WHERE asked.partition_id = ANY ((SELECT string_to_array(current_setting('laneway.locked'), ','))::bigint[])
    ) AS sized
    WHERE bytes_up_to_it <= $4
),
taken AS (
    DELETE FROM laneway.schedule
    WHERE schedule_id = ANY (ARRAY (SELECT schedule_id FROM due))
    RETURNING *
),
placed AS MATERIALIZED (
    SELECT
        taken.*,
        row_number() OVER (PARTITION BY partition_id ORDER BY due_at, schedule_id) - 1 AS position,
        octet_length(payload) - CASE WHEN data_key_id IS NULL THEN 0 ELSE 25 END -- what sealing adds
            + coalesce(octet_length(key), 0) + coalesce(octet_length(headers), 0) AS bytes
    FROM taken
),
batch AS MATERIALIZED (
    SELECT
        b.*,
        coalesce(h.next_offset, 0) AS first_offset,
        coalesce(h.bytes_total, 0) AS bytes_before,
        greatest(h.published_at, clock_timestamp()) AS published_at
    FROM (
        SELECT
            partition_id, count(*)::integer AS messages, sum(bytes)::bigint AS bytes,
            array_agg(DISTINCT ('x' || left(replace(trace_id::text, '-', ''), 16))::bit(64)::bigint) AS traces,
            array_agg((extract(epoch FROM clock_timestamp() - due_at) * 1000000)::bigint) AS late_us
        FROM placed
        GROUP BY partition_id
    ) AS b
    LEFT JOIN LATERAL (
        SELECT head.next_offset, head.bytes_total, head.published_at
        FROM laneway.head
        WHERE head.partition_id = b.partition_id
        ORDER BY head.published_at DESC, head.next_offset DESC
        LIMIT 1
    ) h ON true
),
stored AS (
    INSERT INTO laneway.message (
        partition_id, "offset", published_at, trace_id, cause_partition_id, cause_offset, key, transaction_id, headers,
        content_type, payload, producer, ttl_ms, data_key_id
    )
    SELECT
        placed.partition_id, batch.first_offset + placed.position, batch.published_at, placed.trace_id,
        placed.cause_partition_id, placed.cause_offset, placed.key, placed.transaction_id, placed.headers,
        placed.content_type, placed.payload, placed.producer, placed.ttl_ms, placed.data_key_id
    FROM placed
    JOIN batch USING (partition_id)
    ORDER BY placed.partition_id, placed.position
),
moved AS (
    UPDATE laneway.data_key k
    SET moved_offset = greatest(k.moved_offset, m.next_offset)
    FROM (
        SELECT placed.data_key_id, max(batch.first_offset + placed.position) + 1 AS next_offset
        FROM placed
        JOIN batch USING (partition_id)
        WHERE placed.data_key_id IS NOT NULL
        GROUP BY placed.data_key_id
    ) m
    WHERE k.data_key_id = m.data_key_id
),
heads AS (
    INSERT INTO laneway.head (partition_id, published_at, next_offset, bytes_total)
    SELECT partition_id, published_at, first_offset + messages, bytes_before + bytes
    FROM batch
),
blocks AS (
    INSERT INTO laneway.trace_block (partition_id, first_offset, messages, published_at, traces)
    SELECT partition_id, first_offset, messages, published_at, traces
    FROM batch
),
ids AS (
    INSERT INTO laneway.transaction_seen (partition_id, transaction_id, "offset", published_at)
    SELECT placed.partition_id, placed.transaction_id, batch.first_offset + placed.position, batch.published_at
    FROM placed
    JOIN batch USING (partition_id)
    WHERE placed.transaction_id IS NOT NULL
),
links AS (
    INSERT INTO laneway.trace_link (linked_trace_id, trace_id, partition_id, "offset")
    SELECT l.linked_trace_id, placed.trace_id, placed.partition_id, batch.first_offset + placed.position
    FROM placed
    JOIN batch USING (partition_id)
    CROSS JOIN LATERAL unnest(placed.links) AS l (linked_trace_id)
    ON CONFLICT DO NOTHING -- a message names the same trace twice
),
totals AS (
    INSERT INTO laneway.schedule_total (partition_id, number, scheduled)
    SELECT changed.partition_id, coalesce(t.number, 0) + 1, greatest(coalesce(t.scheduled, 0) - changed.messages, 0)
    FROM (SELECT partition_id, messages FROM batch) AS changed
    LEFT JOIN LATERAL (
        SELECT total.number, total.scheduled
        FROM laneway.schedule_total total
        WHERE total.partition_id = changed.partition_id
        ORDER BY total.number DESC
        LIMIT 1
    ) t ON true
    RETURNING partition_id, number
),
thinned AS (
    DELETE FROM laneway.schedule_total old
    USING totals
    WHERE old.partition_id = totals.partition_id AND totals.number % 64 = 0
      AND old.number >= totals.number - 64 AND old.number < totals.number
)
SELECT partition_id, first_offset, messages, bytes, late_us
FROM batch
