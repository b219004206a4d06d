-- dead_letters_collect: keeps messages that have expired in a group. The lane's row is locked and fenced by the transaction.
-- Once per group and message: a second time, after a seek or in doubt about the first, only renews it.
-- $1 group_id bigint, $2 partition_id bigint, $3 offset bigint[], $4 attempts integer[], $5 reason text[],
-- $6 published_at timestamptz[], $7 trace_id uuid[], $8 cause_partition_id bigint[], $9 cause_offset bigint[], $10 key bytea[],
-- $11 transaction_id text[], $12 headers text[], $13 content_type text[], $14 payload bytea[], $15 producer text[],
-- $16 data_key_id uuid[]
INSERT INTO laneway.dead_letter (
    topic_id, group_name, partition_id, "offset", attempts, reason, published_at, trace_id, cause_partition_id, cause_offset,
    key, transaction_id, headers, content_type, payload, producer, data_key_id
)
SELECT
    g.topic_id, g.name, $2, d."offset", d.attempts, d.reason, d.published_at, d.trace_id, d.cause_partition_id,
    d.cause_offset, d.key, d.transaction_id, d.headers, d.content_type, d.payload, d.producer, d.data_key_id
FROM laneway.consumer_group g
CROSS JOIN unnest(
    $3::bigint[], $4::integer[], $5::text[], $6::timestamptz[], $7::uuid[], $8::bigint[], $9::bigint[], $10::bytea[],
    $11::text[], $12::text[], $13::text[], $14::bytea[], $15::text[], $16::uuid[]
) AS d (
    "offset", attempts, reason, published_at, trace_id, cause_partition_id, cause_offset, key, transaction_id, headers,
    content_type, payload, producer, data_key_id
)
WHERE g.group_id = $1
ON CONFLICT (partition_id, "offset", group_name) DO UPDATE
SET attempts = excluded.attempts, reason = excluded.reason, dead_at = clock_timestamp()
