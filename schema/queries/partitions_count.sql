-- partitions_count: what some partitions of a topic store, and for how long the oldest message of each has been there.
-- $1 topic_id bigint, $2 after_number integer (-1 for the first page), $3 limit bigint
-- No row: no such topic (any more), or the end of the list. Locks nothing; reads heads and totals, and no message. The age is that of the
-- flush that the oldest message came with, or of one at most a spacing of heads later.
SELECT
    p.partition_id, p.number, p.start_offset,
    coalesce(h.next_offset, 0) AS next_offset,
    coalesce(h.bytes_total, 0) - p.start_bytes_total AS stored_bytes,
    h.published_at AS last_published_at,
    coalesce(waiting.scheduled, 0) AS scheduled,
    CASE
        WHEN oldest.published_at IS NOT NULL
        THEN greatest(extract(epoch FROM clock_timestamp() - oldest.published_at), 0)::double precision
    END AS oldest_seconds
FROM laneway.partition p
LEFT JOIN LATERAL (
    SELECT head.next_offset, head.bytes_total, head.published_at
    FROM laneway.head
    WHERE head.partition_id = p.partition_id
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) h ON true
LEFT JOIN LATERAL (
    SELECT head.published_at
    FROM laneway.head
    WHERE head.partition_id = p.partition_id AND head.next_offset > p.start_offset
    ORDER BY head.published_at, head.next_offset
    LIMIT 1
) oldest ON true
LEFT JOIN LATERAL (
    SELECT total.scheduled
    FROM laneway.schedule_total total
    WHERE total.partition_id = p.partition_id
    ORDER BY total.number DESC
    LIMIT 1
) waiting ON true
WHERE p.topic_id = $1 AND p.deleted_at IS NULL AND p.number > $2
ORDER BY p.number
LIMIT $3
