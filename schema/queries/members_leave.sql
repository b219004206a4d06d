-- members_leave: a session that lives at a broker is no longer a member of a group.
-- $1 group_id bigint, $2 session_id uuid, $3 broker_id uuid
-- Count 0: it has moved to another broker, which decides about it now, or is gone already.
DELETE FROM laneway.member m
USING laneway.session s
WHERE m.group_id = $1 AND m.session_id = $2 AND s.session_id = m.session_id AND s.broker_id = $3
