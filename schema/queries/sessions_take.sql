-- sessions_take: moves a session to the broker that its client has come back to.
-- $1 session_id uuid, $2 resume_hash bytea, $3 broker_id uuid
-- No row: no such session, or another token. Locks its row.
UPDATE laneway.session SET broker_id = $3, away_until_at = NULL WHERE session_id = $1 AND resume_hash = $2 RETURNING session_id
