-- groups_list: groups by topic and name, after a given one, with how many living members they have and how far they are
-- behind, in messages.
-- $1 topic_id bigint (null: of every topic), $2 name text (null: every group), $3 after_topic text ('' for the first page),
-- $4 after_group text, $5 limit bigint
-- No row: the end of the list. Locks nothing. Two index descents per lane of the page.
WITH page AS (
    SELECT
        t.name AS topic, g.group_id, g.name, g.ack_deadline_ms, g.max_attempts, g.backoff_base_ms, g.backoff_factor,
        g.backoff_cap_ms, g.on_failure::text AS on_failure, g.capacity::text AS capacity, g.delay_ms, g.window_ms,
        g.window_max_ms, g.max_age_ms, g.on_expiry, g.ordering, g.created_at, g.paused_at
    FROM laneway.consumer_group g
    JOIN laneway.topic t USING (topic_id)
    WHERE t.deleted_at IS NULL AND ($1 IS NULL OR t.topic_id = $1) AND ($2 IS NULL OR g.name = $2)
      AND (t.name, g.name) > ($3, $4)
    ORDER BY t.name, g.name
    LIMIT $5
)
SELECT
    g.*,
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
FROM page g
ORDER BY g.topic, g.name
