-- groups_describe: one group with its settings, how many living members it has and how far it is behind, in messages.
-- $1 topic_id bigint, $2 name text
-- No row: there is no such group. Locks nothing. Two index descents per lane.
SELECT
    t.name AS topic, g.group_id, g.name, g.ack_deadline_ms, g.max_attempts, g.backoff_base_ms, g.backoff_factor,
    g.backoff_cap_ms, g.on_failure::text AS on_failure, g.created_at,
    (
        SELECT count(*)
        FROM laneway.member m
        JOIN laneway.session s USING (session_id)
        JOIN laneway.broker b USING (broker_id)
        WHERE m.group_id = g.group_id AND b.dead_at IS NULL
    ) AS members,
    (
        SELECT
            coalesce(sum(greatest(
                coalesce(h.next_offset, 0) - greatest(coalesce(c.committed_offset, l.first_offset), p.start_offset)
                    - (SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint FROM unnest(c.acked) AS r),
                0
            )), 0)::bigint
        FROM laneway.lane l
        JOIN laneway.partition p ON p.partition_id = l.partition_id
        LEFT JOIN LATERAL (
            SELECT lc.committed_offset, lc.acked
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
        WHERE l.group_id = g.group_id
    ) AS lag
FROM laneway.consumer_group g
JOIN laneway.topic t USING (topic_id)
WHERE t.topic_id = $1 AND t.deleted_at IS NULL AND g.name = $2
