-- steps_expire: forgets steps that nobody may ask for any more, oldest first.
-- $1 limit bigint, $2 window_ms bigint
-- Count of rows = steps gone; fewer than the limit: done. Locks the rows that it deletes.
DELETE FROM laneway.step
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM laneway.step
    WHERE done_at < clock_timestamp() - make_interval(secs => $2 / 1000.0)
    ORDER BY done_at
    LIMIT $1
))
