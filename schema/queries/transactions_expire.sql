-- transactions_expire: forgets transaction ids that no topic's window remembers, oldest first.
-- $1 limit bigint
-- Count of rows = ids gone; fewer than the limit: done. Locks the rows that it deletes.
DELETE FROM laneway.transaction_seen
WHERE ctid = ANY (ARRAY (
    SELECT ctid
    FROM laneway.transaction_seen
    WHERE published_at < clock_timestamp()
        - make_interval(secs => (SELECT coalesce(max(dedup_window_ms), 0) FROM laneway.topic) / 1000.0)
    ORDER BY published_at
    LIMIT $1
))
