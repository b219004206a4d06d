-- locks_room: how many locks of tables the server has room for, whoever takes them.
-- One row. Locks nothing.
SELECT
    current_setting('max_locks_per_transaction')::bigint
        * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint) AS room
