-- segment_read_back: messages of one segment, newest first, before an offset, within a count and a sum of bytes.
-- $1 before bigint, $2 limit bigint, $3 bytes bigint, $4 floor bigint (what lies below it was dropped, and may not open any more)
-- The first message comes whatever its size. No row: nothing between the two here. Locks nothing.
SELECT m.partition_id, m."offset", m.published_at, m.trace_id, m.cause_partition_id, m.cause_offset, m.key, m.transaction_id, m.headers,
       m.content_type, m.payload, m.producer, m.ttl_ms, m.data_key_id
FROM (
    SELECT s.*,
        sum(octet_length(s.payload) + coalesce(octet_length(s.key), 0) + coalesce(octet_length(s.headers), 0))
            OVER (ORDER BY s."offset" DESC) AS bytes_up_to_it,
        row_number() OVER (ORDER BY s."offset" DESC) AS place
    FROM laneway.message_s{segment_id} s
    WHERE s."offset" < $1 AND s."offset" >= $4
    ORDER BY s."offset" DESC
    LIMIT $2
) m
WHERE m.bytes_up_to_it <= $3 OR m.place = 1
ORDER BY m."offset" DESC
