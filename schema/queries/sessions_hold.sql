-- sessions_hold: keeps the sessions that live at a broker from moving to another one until the transaction ends.
-- $1 session_ids uuid[], $2 broker_id uuid
-- Rows: those that live there. Locks their rows by id, shared.
SELECT session_id
FROM laneway.session
WHERE session_id = ANY ($1) AND broker_id = $2
ORDER BY session_id
FOR SHARE
