-- timelines_read: which history of which database a connection speaks to. A promoted standby begins another timeline.
-- One row; the timeline is null on a standby, which follows another's. What is flushed only grows, as long as it is one history. Not from the control file, which names the new timeline
-- only after the first checkpoint on it.
SELECT
    (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
    CASE
        WHEN NOT pg_is_in_recovery()
        THEN ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
    END AS timeline,
    CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint END AS flushed
