-- parked_messages_read: copies of a released key from an offset on, in order, within a count and a sum of bytes.
-- $1 group_id bigint, $2 partition_id bigint, $3 parked_offset bigint, $4 from_offset bigint, $5 limit bigint, $6 bytes bigint
-- The first comes whatever its size. No row: none is left, or the key is not released. Locks nothing.
WITH candidate AS (
    SELECT
        m.*,
        sum(octet_length(m.payload) + coalesce(octet_length(m.headers), 0)) OVER (ORDER BY m."offset") AS bytes_up_to_it,
        row_number() OVER (ORDER BY m."offset") AS place
    FROM (
        SELECT copy.*
        FROM laneway.parked_message copy
        JOIN laneway.parked_key k USING (group_id, partition_id, parked_offset)
        WHERE copy.group_id = $1 AND copy.partition_id = $2 AND copy.parked_offset = $3 AND copy."offset" >= $4
          AND k.state = 'released'
        ORDER BY copy."offset"
        LIMIT $5
    ) m
)
SELECT
    m."offset", m.attempts, m.reason, m.published_at, m.trace_id, m.cause_partition_id, m.cause_offset, m.key,
    m.transaction_id, m.headers, m.content_type, m.payload, m.producer, NULL::bigint AS ttl_ms, m.data_key_id,
    greatest(coalesce((extract(epoch FROM m.retry_at - clock_timestamp()) * 1000)::bigint, 0), 0) AS retry_in_ms
FROM candidate m
WHERE m.bytes_up_to_it <= $6 OR m.place = 1
ORDER BY m."offset"
