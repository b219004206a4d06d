-- groups_list: groups by topic and name, after a given one, with how many living members and lanes they have.
-- $1 topic_id bigint (null: of every topic), $2 after_topic text ('' for the first page), $3 after_group text, $4 limit bigint
-- No row: the end of the list. Locks nothing.
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
WHERE t.deleted_at IS NULL AND ($1 IS NULL OR t.topic_id = $1) AND (t.name, g.name) > ($2, $3)
ORDER BY t.name, g.name
LIMIT $4
