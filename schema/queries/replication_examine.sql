-- replication_examine: who confirms commits, and which slots keep log for somebody who is not there.
-- Always one row. Locks nothing. A role that may not see the state of standbys counts all of them.
SELECT
    (SELECT count(*) FROM pg_stat_replication r WHERE coalesce(r.sync_state, 'sync') IN ('sync', 'quorum')) AS confirming,
    coalesce(array_agg(s.slot_name::text ORDER BY s.slot_name) FILTER (WHERE NOT s.active), '{}') AS inactive_slots,
    coalesce(
        max(pg_wal_lsn_diff(
            CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
            s.restart_lsn
        )) FILTER (WHERE NOT s.active),
        0
    )::bigint AS held_bytes
FROM pg_replication_slots s
