-- sessions_close: ends a session; its memberships go with it.
-- $1 session_id uuid, $2 broker_id uuid
-- Count 0: it has moved to another broker, or is gone already.
DELETE FROM laneway.session WHERE session_id = $1 AND broker_id = $2
