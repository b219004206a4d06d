-- schedules_expire: forgets what producers have scheduled under which number, once no topic's window remembers it.
-- $1 limit bigint
-- Count of rows = numbers gone; fewer than the limit: done. Locks the rows that it deletes.
DELETE FROM laneway.schedule_seen
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM laneway.schedule_seen
    WHERE scheduled_at < clock_timestamp()
        - make_interval(secs => (SELECT coalesce(max(dedup_window_ms), 0) FROM laneway.topic) / 1000.0)
    ORDER BY scheduled_at
    LIMIT $1
))
