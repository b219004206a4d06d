-- settings_examine: the settings of the server that decide whether it keeps what it promises, and its clock.
-- Always one row. Locks nothing.
SELECT
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standby_names,
    current_setting('autovacuum') AS autovacuum,
    current_setting('track_counts') AS track_counts,
    current_setting('max_connections')::bigint AS max_connections,
    current_setting('superuser_reserved_connections')::bigint
        + coalesce(current_setting('reserved_connections', true), '0')::bigint AS reserved_connections,
    current_setting('max_prepared_transactions')::bigint AS max_prepared_transactions,
    current_setting('max_locks_per_transaction')::bigint AS max_locks_per_transaction,
    current_setting('default_transaction_read_only') AS default_transaction_read_only,
    pg_is_in_recovery() AS in_recovery,
    clock_timestamp() AS now
