-- parked_messages_insert: copies messages of parked keys aside. The lane's row is locked and fenced by the transaction.
-- Once per group and message: a second time, after a seek or a failure of the copy itself, only renews it; one that stands behind
-- others (0 attempts) keeps what is known of its own failures.
-- $1 group_id bigint, $2 partition_id bigint, $3 offset bigint[], $4 parked_offset bigint[], $5 attempts integer[],
-- $6 reason text[], $7 published_at timestamptz[], $8 trace_id uuid[], $9 cause_partition_id bigint[], $10 cause_offset bigint[],
-- $11 key bytea[], $12 transaction_id text[], $13 headers text[], $14 content_type text[], $15 payload bytea[],
-- $16 producer text[], $17 data_key_id uuid[]
WITH put AS (
    INSERT INTO laneway.parked_message (
        group_id, partition_id, "offset", parked_offset, attempts, reason, published_at, trace_id, cause_partition_id,
        cause_offset, key, transaction_id, headers, content_type, payload, producer,
        data_key_id
    )
    SELECT
        $1, $2, d."offset", d.parked_offset, d.attempts, d.reason, d.published_at, d.trace_id, d.cause_partition_id,
        d.cause_offset, d.key, d.transaction_id, d.headers, d.content_type, d.payload, d.producer,
        d.data_key_id
    FROM unnest(
        $3::bigint[], $4::bigint[], $5::integer[], $6::text[], $7::timestamptz[], $8::uuid[], $9::bigint[], $10::bigint[],
        $11::bytea[], $12::text[], $13::text[], $14::text[], $15::bytea[], $16::text[], $17::uuid[]
    ) AS d (
        "offset", parked_offset, attempts, reason, published_at, trace_id, cause_partition_id, cause_offset, key,
        transaction_id, headers, content_type, payload, producer, data_key_id
    )
    ON CONFLICT (group_id, partition_id, "offset") DO UPDATE
    SET attempts = CASE WHEN excluded.attempts > 0 THEN excluded.attempts ELSE parked_message.attempts END,
        reason = CASE WHEN excluded.attempts > 0 THEN excluded.reason ELSE parked_message.reason END,
        retry_at = NULL
    RETURNING parked_offset, xmax = 0 AS is_new
)
UPDATE laneway.parked_key k
SET messages = k.messages + n.messages
FROM (SELECT parked_offset, count(*) AS messages FROM put WHERE is_new GROUP BY parked_offset) n
WHERE k.group_id = $1 AND k.partition_id = $2 AND k.parked_offset = n.parked_offset
