-- schedules_insert: writes down messages that wait for their time, those of one unit all or none.
-- units:    $1 partition_id bigint[], $2 topic_id bigint[], $3 window_ms bigint[]
-- messages: $4 unit integer[] (counted from 1), $5 deliver_at timestamptz[], $6 delay_ms bigint[] (one of both is null),
--           $7 producer_id uuid[], $8 sequence bigint[], $9 trace_id uuid[], $10 cause_partition_id bigint[],
--           $11 cause_offset bigint[], $12 key bytea[], $13 transaction_id text[], $14 headers text[],
--           $15 content_type text[], $16 payload bytea[], $17 producer text[], $18 links text[] (of each, as an array's text)
-- bounds:   $19 past_ms bigint, $20 ahead_ms bigint
-- more:     $21 ttl_ms bigint[], $22 data_key_id uuid[] (of messages)
-- Rows: one per unit whose partition is locked: `places` of its messages in their order (an offset if a copy is stored, else
-- its schedule_id, negated) and which of them are `fresh`; or `fault` ('past', 'far') of its message `fault_at`, counted from 0,
-- and nothing of the unit was written. No row: the partition is gone.
-- The places of a unit are left in the transaction-local setting laneway.scheduled_<unit>, too, for steps_insert.
-- A transaction id that waits is remembered as seen at its due time: while it waits, and for a window after.
-- Locks: the caller holds the partitions' rows, which partitions_lock_waiting has left in laneway.locked. No two messages of
-- a call have the same number or transaction id.
WITH now AS MATERIALIZED (
    SELECT clock_timestamp() AS at
),
asked AS MATERIALIZED (
    SELECT
        m.*, ($1::bigint[])[m.unit] AS partition_id, ($2::bigint[])[m.unit] AS topic_id, now.at,
        coalesce(m.deliver_at, now.at + m.delay_ms * interval '1 millisecond') AS due_at,
        coalesce(-k.schedule_id, seen."offset") AS known_place
    FROM unnest(
        $4::integer[], $5::timestamptz[], $6::bigint[], $7::uuid[], $8::bigint[], $9::uuid[], $10::bigint[], $11::bigint[],
        $12::bytea[], $13::text[], $14::text[], $15::text[], $16::bytea[], $17::text[], $18::text[], $21::bigint[],
        $22::uuid[]
    ) WITH ORDINALITY AS m (
        unit, deliver_at, delay_ms, producer_id, sequence, trace_id, cause_partition_id, cause_offset,
        key, transaction_id, headers, content_type, payload, producer, links, ttl_ms, data_key_id, message
    )
    CROSS JOIN now
    LEFT JOIN LATERAL (
        SELECT k.schedule_id
        FROM laneway.schedule_seen k
        WHERE k.partition_id = ($1::bigint[])[m.unit] AND k.producer_id = m.producer_id AND k.sequence = m.sequence
    ) k ON true
    LEFT JOIN LATERAL (
        SELECT seen."offset"
        FROM laneway.transaction_seen seen
        WHERE seen.partition_id = ($1::bigint[])[m.unit]
          AND seen.transaction_id = m.transaction_id COLLATE "C"
          AND seen.published_at > clock_timestamp() - make_interval(secs => ($3::bigint[])[m.unit] / 1000.0)
        ORDER BY seen."offset" DESC
        LIMIT 1
    ) seen ON true
    WHERE ($1::bigint[])[m.unit] = ANY ((SELECT string_to_array(current_setting('laneway.locked'), ','))::bigint[])
),
judged AS MATERIALIZED (
    SELECT
        asked.*,
        CASE
            WHEN known_place IS NOT NULL THEN NULL
            WHEN due_at < at - $19::bigint * interval '1 millisecond' THEN 'past'
            WHEN due_at > at + $20::bigint * interval '1 millisecond' THEN 'far'
        END AS fault
    FROM asked
),
numbered AS MATERIALIZED (
    SELECT
        sorted.*,
        CASE
            WHEN known_place IS NULL AND faults = 0 THEN nextval('laneway.schedule_schedule_id_seq')
        END AS schedule_id
    FROM (
        SELECT
            judged.*, count(fault) OVER (PARTITION BY unit) AS faults,
            row_number() OVER (PARTITION BY unit ORDER BY message) - 1 AS position
        FROM judged
        ORDER BY message
        OFFSET 0
    ) AS sorted
),
written AS (
    INSERT INTO laneway.schedule (
        schedule_id, topic_id, partition_id, due_at, scheduled_at, trace_id, cause_partition_id, cause_offset, key,
        transaction_id, headers, content_type, payload, producer, links, ttl_ms, data_key_id
    )
    SELECT
        schedule_id, topic_id, partition_id, greatest(due_at, at), at, trace_id, cause_partition_id, cause_offset, key,
        transaction_id, headers, content_type, payload, producer, coalesce(links, '{}')::uuid[],
        ttl_ms, data_key_id
    FROM numbered
    WHERE schedule_id IS NOT NULL
    ORDER BY message
),
numbers AS (
    INSERT INTO laneway.schedule_seen (partition_id, producer_id, sequence, schedule_id, scheduled_at)
    SELECT partition_id, producer_id, sequence, schedule_id, at
    FROM numbered
    WHERE schedule_id IS NOT NULL AND producer_id IS NOT NULL
),
ids AS (
    INSERT INTO laneway.transaction_seen (partition_id, transaction_id, "offset", published_at)
    SELECT partition_id, transaction_id, -schedule_id, greatest(due_at, at)
    FROM numbered
    WHERE schedule_id IS NOT NULL AND transaction_id IS NOT NULL
),
totals AS (
    INSERT INTO laneway.schedule_total (partition_id, number, scheduled)
    SELECT changed.partition_id, coalesce(t.number, 0) + 1, greatest(coalesce(t.scheduled, 0) + changed.messages, 0)
    FROM (
        SELECT partition_id, count(*) AS messages FROM numbered WHERE schedule_id IS NOT NULL GROUP BY partition_id
    ) AS changed
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
SELECT
    unit,
    (array_agg(fault ORDER BY message) FILTER (WHERE fault IS NOT NULL))[1] AS fault,
    min(position) FILTER (WHERE fault IS NOT NULL) AS fault_at,
    array_agg(coalesce(known_place, -schedule_id, 0) ORDER BY message) AS places,
    array_agg(schedule_id IS NOT NULL ORDER BY message) AS fresh,
    set_config(
        'laneway.scheduled_' || unit, string_agg(coalesce(known_place, -schedule_id, 0)::text, ',' ORDER BY message), true
    ) AS told,
    min(due_at) FILTER (WHERE schedule_id IS NOT NULL) AS first_due_at
FROM numbered
GROUP BY unit
