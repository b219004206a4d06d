-- topics_depth: what a topic stores and may hold, and how far each of its groups is behind, in messages and in bytes.
-- $1 topic_id bigint, $2 with_bytes boolean (otherwise bytes are 0, unless the topic limits them)
-- No row: no such topic (any more). A row per group; one with a null name if there is none. Locks nothing; an index descent
-- per partition, and two per group and partition. Bytes are counted from the last head at or below what was committed: up to
-- a flush too many, or what thinning has left between two heads; never too few.
WITH limits AS (
    SELECT
        t.max_backlog_messages, t.max_backlog_bytes, t.max_stored_bytes, $2 OR t.max_backlog_bytes IS NOT NULL AS with_bytes
    FROM laneway.topic t
    WHERE t.topic_id = $1
),
part AS (
    SELECT
        p.partition_id, p.start_offset, p.start_bytes_total, coalesce(h.next_offset, 0) AS next_offset,
        coalesce(h.bytes_total, 0) AS bytes_total
    FROM laneway.partition p
    LEFT JOIN LATERAL (
        SELECT head.next_offset, head.bytes_total
        FROM laneway.head
        WHERE head.partition_id = p.partition_id
        ORDER BY head.published_at DESC, head.next_offset DESC
        LIMIT 1
    ) h ON true
    WHERE p.topic_id = $1 AND p.deleted_at IS NULL
),
behind AS (
    SELECT
        g.name, g.capacity::text AS capacity,
        sum(greatest(part.next_offset - f.committed_offset, 0))::bigint AS messages,
        CASE
            WHEN limits.with_bytes THEN sum(part.bytes_total - greatest(coalesce(b.bytes_total, 0), part.start_bytes_total))::bigint
            ELSE 0
        END AS bytes
    FROM laneway.consumer_group g
    CROSS JOIN limits
    CROSS JOIN part
    LEFT JOIN laneway.lane l ON l.group_id = g.group_id AND l.partition_id = part.partition_id
    LEFT JOIN LATERAL (
        SELECT lc.committed_offset
        FROM laneway.lane_commit lc
        WHERE lc.group_id = g.group_id AND lc.partition_id = part.partition_id
        ORDER BY lc.epoch DESC, lc.number DESC
        LIMIT 1
    ) c ON true
    CROSS JOIN LATERAL (
        SELECT greatest(coalesce(c.committed_offset, l.first_offset, 0), part.start_offset) AS committed_offset
    ) f
    LEFT JOIN LATERAL (
        SELECT head.bytes_total
        FROM laneway.head
        WHERE limits.with_bytes AND head.partition_id = part.partition_id AND head.next_offset <= f.committed_offset
        ORDER BY head.published_at DESC, head.next_offset DESC
        LIMIT 1
    ) b ON true
    WHERE g.topic_id = $1
    GROUP BY g.group_id, limits.with_bytes
)
SELECT
    stored.bytes AS stored_bytes, limits.max_backlog_messages, limits.max_backlog_bytes, limits.max_stored_bytes,
    behind.name, behind.capacity, behind.messages, behind.bytes
FROM (SELECT sum(bytes_total - start_bytes_total)::bigint AS bytes FROM part HAVING count(*) > 0) stored
CROSS JOIN limits
LEFT JOIN behind ON true
