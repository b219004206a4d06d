-- sessions_away: a session whose connection is lost keeps what it holds, and gets nothing more until this moment.
-- $1 session_id uuid, $2 broker_id uuid, $3 away_ms bigint (0: it is back)
-- Count 0: it has moved to another broker, or is over. Locks its row.
UPDATE laneway.session
SET away_until_at = CASE WHEN $3::bigint > 0 THEN clock_timestamp() + $3::bigint * interval '1 millisecond' END
WHERE session_id = $1 AND broker_id = $2
