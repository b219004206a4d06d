-- locks_limit: bounds how long the rest of this transaction waits for each lock.
-- $1 lock_timeout text, such as 100ms
SELECT set_config('lock_timeout', $1, true)
