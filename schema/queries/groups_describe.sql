-- groups_describe: one group with its settings, and how many living members it has.
-- $1 topic_id bigint, $2 name text
-- No row: there is no such group. Locks nothing.
SELECT
    t.name AS topic, g.group_id, g.name, g.ack_deadline_ms, g.max_attempts, g.backoff_base_ms, g.backoff_factor,
    g.backoff_cap_ms, g.on_failure::text AS on_failure, g.created_at,
    (
        SELECT count(*)
        FROM laneway.member m
        JOIN laneway.session s USING (session_id)
        JOIN laneway.broker b USING (broker_id)
        WHERE m.group_id = g.group_id AND b.dead_at IS NULL
    ) AS members
FROM laneway.consumer_group g
JOIN laneway.topic t USING (topic_id)
WHERE t.topic_id = $1 AND t.deleted_at IS NULL AND g.name = $2
