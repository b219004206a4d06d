-- heads_newest: where some partitions end now, and when their newest messages were published.
-- $1 partition_ids bigint[]
-- Rows: those that have any message. Locks nothing; one index descent per partition.
SELECT w.partition_id, h.next_offset, h.published_at
FROM unnest($1::bigint[]) AS w (partition_id)
CROSS JOIN LATERAL (
    SELECT head.next_offset, head.published_at
    FROM laneway.head
    WHERE head.partition_id = w.partition_id
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) h
