-- heads_newest: where some partitions start and end now, and when their newest messages were published.
-- $1 partition_ids bigint[]
-- Rows: those that have any message. Locks nothing; two index descents per partition.
SELECT w.partition_id, p.start_offset, h.next_offset, h.published_at
FROM unnest($1::bigint[]) AS w (partition_id)
JOIN laneway.partition p USING (partition_id)
CROSS JOIN LATERAL (
    SELECT head.next_offset, head.published_at
    FROM laneway.head
    WHERE head.partition_id = w.partition_id
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) h
