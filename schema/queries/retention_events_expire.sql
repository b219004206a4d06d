-- retention_events_expire: drops the oldest part of the history.
-- $1 limit bigint, $2 age_ms bigint
-- Count of rows = events gone; fewer than the limit: done, for now. Locks the rows that it deletes.
DELETE FROM laneway.retention_event
WHERE ctid = ANY (ARRAY (
    SELECT e.ctid
    FROM laneway.retention_event e
    WHERE e.dropped_at < clock_timestamp() - make_interval(secs => $2 / 1000.0)
    ORDER BY e.dropped_at
    LIMIT $1
))
