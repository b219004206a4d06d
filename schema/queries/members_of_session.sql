-- members_of_session: the groups of a session, with what it subscribed with.
-- $1 session_id uuid
-- No row: it is a member of none. Locks nothing.
SELECT m.group_id, g.name AS group_name, t.name AS topic_name, m.terms
FROM laneway.member m
JOIN laneway.consumer_group g USING (group_id)
JOIN laneway.topic t USING (topic_id)
WHERE m.session_id = $1
ORDER BY m.group_id
