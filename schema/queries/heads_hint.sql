-- heads_hint: tells the other brokers that partitions have grown. A hint, outside the flush: inside, it would make all
-- commits of the database wait for each other.
-- $1 payload text
-- Nobody waits for the disk because of a hint: it may be lost. Never inside a transaction that writes: that would not wait either.
SELECT set_config('synchronous_commit', 'off', true), pg_notify('laneway', $1)
