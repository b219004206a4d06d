-- partitions_describe: where the partitions of a topic start and end, and what they store.
-- $1 topic_id bigint
-- No row: no such topic (any more). Locks nothing; one index descent per partition.
SELECT
    p.partition_id, p.number, p.start_offset,
    coalesce(h.next_offset, 0) AS next_offset,
    coalesce(h.bytes_total, 0) - p.start_bytes_total AS stored_bytes,
    h.published_at AS last_published_at
FROM laneway.partition p
LEFT JOIN LATERAL (
    SELECT head.next_offset, head.bytes_total, head.published_at
    FROM laneway.head
    WHERE head.partition_id = p.partition_id
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) h ON true
WHERE p.topic_id = $1 AND p.deleted_at IS NULL
ORDER BY p.number
