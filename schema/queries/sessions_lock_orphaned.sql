-- sessions_lock_orphaned: takes the sessions of buried brokers before their lanes. Locks their rows by id.
-- $1 broker_ids uuid[]
-- No row: they have none. Why first: a session that resumes elsewhere at this moment is locked before its lanes too.
SELECT session_id FROM laneway.session WHERE broker_id = ANY ($1) ORDER BY session_id FOR UPDATE
