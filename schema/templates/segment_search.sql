-- segment_search: messages of one segment that match, newest first, between offsets, within a count and a sum of bytes.
-- $1 floor bigint, $2 before bigint, $3 key bytea (null: any), $4 transaction_id text (null: any),
-- $5 limit bigint, $6 bytes bigint
-- The first match comes whatever its size. matched: how many there are within the count; fewer rows: the bytes have left some out.
-- No row: none here. Locks nothing.
SELECT m.partition_id, m."offset", m.published_at, m.trace_id, m.cause_partition_id, m.cause_offset, m.key, m.transaction_id, m.headers,
       m.content_type, m.payload, m.producer, m.ttl_ms, m.data_key_id, m.matched
FROM (
    SELECT s.*,
        sum(octet_length(s.payload) + coalesce(octet_length(s.key), 0) + coalesce(octet_length(s.headers), 0))
            OVER (ORDER BY s."offset" DESC) AS bytes_up_to_it,
        row_number() OVER (ORDER BY s."offset" DESC) AS place,
        count(*) OVER () AS matched
    FROM (
        SELECT c.*
        FROM laneway.message_s{segment_id} c
        WHERE c."offset" >= $1 AND c."offset" < $2
          AND ($3::bytea IS NULL OR c.key = $3)
          AND ($4::text IS NULL OR c.transaction_id = $4 COLLATE "C")
        ORDER BY c."offset" DESC
        LIMIT $5
    ) s
) m
WHERE m.bytes_up_to_it <= $6 OR m.place = 1
ORDER BY m."offset" DESC
