-- sessions_find: the broker that a session lives on.
-- $1 session_id uuid
-- No row: it has joined no group, or is over. Locks nothing.
SELECT broker_id FROM laneway.session WHERE session_id = $1
