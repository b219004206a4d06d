-- activity_examine: how many connections there are, and which sessions idle in a transaction.
-- $1 idle_seconds double precision (from when on it counts)
-- Always one row. Locks nothing. A role sees the state of its own sessions only, unless it may read all statistics.
WITH activity AS (
    SELECT
        a.pid, a.state LIKE 'idle in transaction%' AS in_transaction,
        extract(epoch FROM clock_timestamp() - a.state_change)::double precision AS seconds
    FROM pg_stat_activity a
    WHERE a.backend_type = 'client backend'
)
SELECT
    count(*) AS connections,
    coalesce(array_agg(pid ORDER BY seconds DESC) FILTER (WHERE in_transaction AND seconds > $1), '{}') AS idle_pids,
    coalesce(max(seconds) FILTER (WHERE in_transaction AND seconds > $1), 0) AS idle_seconds
FROM activity
