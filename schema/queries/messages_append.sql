-- messages_append: the flush. Writes the batches whose partitions partitions_lock obtained in the same transaction.
-- batches:  $1 partition_id bigint[], $2 messages integer[], $3 bytes bigint[]
-- checks:   $4 batch integer[], $5 producer_id uuid[], $6 first_sequence bigint[]
-- runs:     $7 batch integer[], $8 producer_id uuid[], $9 first_sequence bigint[], $10 last_sequence bigint[],
--           $11 place bigint[], $12 placed_by text[] ('position' in the batch, or 'offset' of an older copy)
-- ids:      $13 batch integer[], $14 position integer[], $15 transaction_id text[], $16 window_ms bigint[]
-- messages: $17 batch integer[], $18 position integer[], $19 trace_id uuid[], $20 cause_partition_id bigint[],
--           $21 cause_offset bigint[], $22 key bytea[], $23 transaction_id text[], $24 headers text[],
--           $25 content_type text[], $26 payload bytea[], $27 producer text[]
-- traces:   $28 first integer[], $29 last integer[] (of each batch, in) $30 traces bigint[]
-- links:    $31 batch integer[], $32 position integer[], $33 trace_id uuid[], $34 linked_trace_id uuid[]
-- checks:   $35 known_offset bigint[]: where the partition stands if the sequence is known to fit; null: it has to be looked up
-- more:     $36 ttl_ms bigint[], $37 data_key_id uuid[] (of messages)
-- `batch` counts from 1 in the order of $1. Optional message columns that the whole flush leaves empty are empty arrays.
-- Rows: 'stored' per batch written; 'sequence' per check that did not fit; 'repeated' per transaction id known.
-- A batch with neither was not locked. A batch with a misfit is not written: the appender takes it out and comes back.
-- Why one base per batch in arrays and no join: the generic plan would loop over messages × batches, and over runs × batches.
WITH batch AS MATERIALIZED (
    SELECT
        b.batch, b.partition_id, b.messages, b.bytes,
        coalesce(h.next_offset, 0) AS first_offset,
        coalesce(h.bytes_total, 0) AS bytes_before,
        greatest(h.published_at, clock_timestamp()) AS published_at
    FROM unnest($1::bigint[], $2::integer[], $3::bigint[]) WITH ORDINALITY AS b (partition_id, messages, bytes, batch)
    LEFT JOIN LATERAL (
        SELECT head.next_offset, head.bytes_total, head.published_at
        FROM laneway.head
        WHERE head.partition_id = b.partition_id
        ORDER BY head.published_at DESC, head.next_offset DESC
        LIMIT 1
    ) h ON true
    WHERE b.partition_id = ANY (ARRAY(SELECT unnest(string_to_array(current_setting('laneway.locked'), ','))::bigint))
),
misfit AS MATERIALIZED (
    SELECT batch.batch, c.check_no, k.last_sequence
    FROM unnest($4::integer[], $5::uuid[], $6::bigint[], $35::bigint[]) WITH ORDINALITY
        AS c (batch, producer_id, first_sequence, known_offset, check_no)
    JOIN batch ON batch.batch = c.batch AND batch.first_offset IS DISTINCT FROM c.known_offset
    LEFT JOIN LATERAL (
        SELECT r.last_sequence
        FROM laneway.producer_run r
        WHERE r.partition_id = batch.partition_id AND r.producer_id = c.producer_id
        ORDER BY r.last_sequence DESC
        LIMIT 1
    ) k ON true
    WHERE c.first_sequence <> coalesce(k.last_sequence + 1, 0)
),
repeated AS MATERIALIZED (
    SELECT i.batch, i.position, s."offset"
    FROM unnest($13::integer[], $14::integer[], $15::text[], $16::bigint[]) AS i (batch, position, transaction_id, window_ms)
    JOIN LATERAL (
        SELECT seen."offset"
        FROM laneway.transaction_seen seen
        WHERE seen.partition_id = ($1::bigint[])[i.batch]
          AND seen.transaction_id = i.transaction_id COLLATE "C"
          AND seen.published_at > clock_timestamp() - make_interval(secs => i.window_ms / 1000.0)
        ORDER BY seen."offset" DESC
        LIMIT 1
    ) s ON true
),
clean AS MATERIALIZED (
    SELECT batch.*
    FROM batch
    WHERE NOT EXISTS (SELECT FROM misfit WHERE misfit.batch = batch.batch)
      AND NOT EXISTS (SELECT FROM repeated WHERE repeated.batch = batch.batch)
),
base AS MATERIALIZED (
    SELECT
        array_agg(coalesce(clean.first_offset, -1) ORDER BY b.batch) AS first_offsets,
        array_agg(coalesce(clean.published_at, '-infinity') ORDER BY b.batch) AS published_ats
    FROM unnest($1::bigint[]) WITH ORDINALITY AS b (partition_id, batch)
    LEFT JOIN clean ON clean.batch = b.batch
),
stored AS (
    INSERT INTO laneway.message (
        partition_id, "offset", published_at, trace_id, cause_partition_id, cause_offset, key, transaction_id, headers,
        content_type, payload, producer, ttl_ms, data_key_id
    )
    SELECT
        ($1::bigint[])[m.batch],
        (SELECT first_offsets FROM base)[m.batch] + m.position,
        (SELECT published_ats FROM base)[m.batch],
        m.trace_id, m.cause_partition_id, m.cause_offset, m.key, m.transaction_id, m.headers, m.content_type,
        m.payload, m.producer, m.ttl_ms, m.data_key_id
    FROM (
        SELECT
            unnest($17::integer[]) AS batch, unnest($18::integer[]) AS position, unnest($19::uuid[]) AS trace_id,
            unnest($20::bigint[]) AS cause_partition_id, unnest($21::bigint[]) AS cause_offset,
            unnest($22::bytea[]) AS key, unnest($23::text[]) AS transaction_id, unnest($24::text[]) AS headers,
            unnest($25::text[]) AS content_type, unnest($26::bytea[]) AS payload, unnest($27::text[]) AS producer,
            unnest($36::bigint[]) AS ttl_ms, unnest($37::uuid[]) AS data_key_id
    ) m
    WHERE (SELECT first_offsets FROM base)[m.batch] >= 0
),
heads AS (
    INSERT INTO laneway.head (partition_id, published_at, next_offset, bytes_total)
    SELECT partition_id, published_at, first_offset + messages, bytes_before + bytes
    FROM clean
    WHERE messages > 0
),
blocks AS (
    INSERT INTO laneway.trace_block (partition_id, first_offset, messages, published_at, traces)
    SELECT
        partition_id, first_offset, messages, published_at,
        ($30::bigint[])[($28::integer[])[batch]:($29::integer[])[batch]]
    FROM clean
    WHERE messages > 0
),
runs AS (
    INSERT INTO laneway.producer_run (partition_id, producer_id, first_sequence, last_sequence, first_offset, published_at)
    SELECT
        ($1::bigint[])[r.batch], r.producer_id, r.first_sequence, r.last_sequence,
        (SELECT first_offsets FROM base)[r.batch] + r.place,
        (SELECT published_ats FROM base)[r.batch]
    FROM unnest($7::integer[], $8::uuid[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[])
        AS r (batch, producer_id, first_sequence, last_sequence, place, placed_by)
    WHERE r.placed_by = 'position' AND (SELECT first_offsets FROM base)[r.batch] >= 0
),
older_runs AS (
    INSERT INTO laneway.producer_run (partition_id, producer_id, first_sequence, last_sequence, first_offset, published_at)
    SELECT
        ($1::bigint[])[r.batch], r.producer_id, r.first_sequence, r.last_sequence, r.place,
        (SELECT published_ats FROM base)[r.batch]
    FROM unnest($7::integer[], $8::uuid[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[])
        AS r (batch, producer_id, first_sequence, last_sequence, place, placed_by)
    WHERE 'offset' = ANY ($12) -- hardly ever: then nothing is read
      AND r.placed_by = 'offset' AND (SELECT first_offsets FROM base)[r.batch] >= 0
    ON CONFLICT DO NOTHING -- another broker has written it down, without a message that would have shown in the head
),
ids AS (
    INSERT INTO laneway.transaction_seen (partition_id, transaction_id, "offset", published_at)
    SELECT clean.partition_id, i.transaction_id, clean.first_offset + i.position, clean.published_at
    FROM unnest($13::integer[], $14::integer[], $15::text[]) AS i (batch, position, transaction_id)
    JOIN clean ON clean.batch = i.batch
),
links AS (
    INSERT INTO laneway.trace_link (linked_trace_id, trace_id, partition_id, "offset")
    SELECT l.linked_trace_id, l.trace_id, clean.partition_id, clean.first_offset + l.position
    FROM unnest($31::integer[], $32::integer[], $33::uuid[], $34::uuid[]) AS l (batch, position, trace_id, linked_trace_id)
    JOIN clean ON clean.batch = l.batch
    ON CONFLICT DO NOTHING -- a message names the same trace twice
)
SELECT 'stored' AS kind, batch::integer AS batch, first_offset AS place, messages::bigint AS number, published_at FROM clean
UNION ALL
SELECT 'sequence', misfit.batch::integer, misfit.check_no, misfit.last_sequence, NULL FROM misfit
UNION ALL
SELECT 'repeated', repeated.batch, repeated.position, repeated."offset", NULL FROM repeated JOIN batch USING (batch)
