-- selections_of_session: what a session selects.
-- $1 session_id uuid
-- No row: nothing. Locks nothing.
SELECT terms FROM laneway.selection WHERE session_id = $1 ORDER BY number
