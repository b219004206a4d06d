-- heads_hint: tells the other brokers that partitions have grown. A hint, outside the flush: inside, it would make all
-- commits of the database wait for each other.
-- $1 payload text
SELECT pg_notify('laneway', $1)
