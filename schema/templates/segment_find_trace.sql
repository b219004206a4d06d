-- segment_find_trace: the messages of one trace among the offsets of a block.
-- $1 first_offset bigint, $2 end_offset bigint, $3 trace_id uuid, $4 limit bigint
-- No row: the block belongs to another trace with the same prefix. Locks nothing.
SELECT s.partition_id, s."offset", s.published_at, s.trace_id, s.cause_partition_id, s.cause_offset, s.key, s.transaction_id, s.headers,
       s.content_type, s.payload, s.producer, s.ttl_ms, s.data_key_id,
       octet_length(s.payload) - CASE WHEN s.data_key_id IS NULL THEN 0 ELSE 25 END AS size -- what sealing adds
FROM laneway.message_s{segment_id} s
WHERE s."offset" >= $1 AND s."offset" < $2 AND s.trace_id = $3
ORDER BY s."offset"
LIMIT $4
