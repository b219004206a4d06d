-- selections_leave: a session that lives at a broker selects topics no longer.
-- $1 session_id uuid, $2 number bigint, $3 broker_id uuid
-- Count 0: it has moved to another broker, which decides about it now, or is gone already.
DELETE FROM laneway.selection c
USING laneway.session s
WHERE c.session_id = $1 AND c.number = $2 AND s.session_id = c.session_id AND s.broker_id = $3
