-- lanes_waiting: how far the groups are behind in some partitions.
-- $1 partition_ids bigint[]
-- No row: they have no group. Locks nothing; reads commits and heads, and no message. How long is told as in lanes_describe.
-- in_flight: of a lane that a puller has, what it was given and has not done; 0 if nobody has it; null if a session holds it, because
-- only its broker knows.
SELECT
    l.partition_id, l.group_id, g.name AS group_name,
    greatest(placed.next_offset - placed.committed_offset - placed.acked, 0) AS lag,
    CASE
        WHEN placed.next_offset > placed.committed_offset
        THEN greatest(extract(epoch FROM clock_timestamp() - waiting.published_at), 0)::double precision
        ELSE 0
    END AS lag_seconds,
    CASE
        WHEN l.session_id IS NOT NULL THEN NULL
        WHEN l.popped_until_at > clock_timestamp() THEN (
            SELECT greatest(l.popped_end_offset - placed.committed_offset - coalesce(sum(upper(r) - lower(r)), 0), 0)::bigint
            FROM unnest(placed.done * int8multirange(int8range(
                placed.committed_offset, greatest(l.popped_end_offset, placed.committed_offset)
            ))) AS r
        )
        ELSE 0
    END AS in_flight
FROM laneway.lane l
JOIN laneway.consumer_group g USING (group_id)
JOIN laneway.partition p ON p.partition_id = l.partition_id
LEFT JOIN LATERAL (
    SELECT lc.epoch, lc.committed_offset, lc.acked
    FROM laneway.lane_commit lc
    WHERE lc.group_id = l.group_id AND lc.partition_id = l.partition_id
    ORDER BY lc.epoch DESC, lc.number DESC
    LIMIT 1
) c ON true
LEFT JOIN LATERAL (
    SELECT head.next_offset
    FROM laneway.head
    WHERE head.partition_id = l.partition_id
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) h ON true
LEFT JOIN LATERAL (
    SELECT range_agg(int8range(sa.from_offset, sa.to_offset)) AS acked
    FROM laneway.step_ack sa
    WHERE l.popped_until_at IS NOT NULL AND sa.group_id = l.group_id AND sa.partition_id = l.partition_id
      AND sa.epoch >= coalesce(c.epoch, 0)
) s ON true
CROSS JOIN LATERAL (
    SELECT
        greatest(coalesce(c.committed_offset, l.first_offset), p.start_offset) AS committed_offset,
        coalesce(h.next_offset, 0) AS next_offset,
        (SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint FROM unnest(c.acked) AS r) AS acked,
        coalesce(c.acked, '{}') + coalesce(s.acked, '{}') AS done
) placed
LEFT JOIN LATERAL (
    SELECT head.published_at, head.next_offset
    FROM laneway.head
    WHERE head.partition_id = l.partition_id AND head.next_offset <= placed.committed_offset
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) done ON placed.next_offset > placed.committed_offset
LEFT JOIN LATERAL (
    SELECT head.published_at
    FROM laneway.head
    WHERE head.partition_id = l.partition_id
      AND (head.published_at, head.next_offset) > (coalesce(done.published_at, '-infinity'), coalesce(done.next_offset, 0))
    ORDER BY head.published_at, head.next_offset
    LIMIT 1
) waiting ON placed.next_offset > placed.committed_offset
WHERE l.partition_id = ANY ($1)
ORDER BY l.partition_id, g.name
