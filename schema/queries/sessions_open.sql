-- sessions_open: enters a session that joins its first group; a second time changes nothing.
-- $1 session_id uuid, $2 broker_id uuid, $3 resume_hash bytea
INSERT INTO laneway.session (session_id, broker_id, resume_hash)
VALUES ($1, $2, $3)
ON CONFLICT (session_id) DO NOTHING
