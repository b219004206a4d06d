-- commits_wait: makes this transaction's commit wait for the disk, whatever the role or the database says; what is stronger
-- than `on` stays.
-- No row: it waits already.
SELECT set_config('synchronous_commit', 'on', true)
WHERE current_setting('synchronous_commit') IN ('off', 'local')
