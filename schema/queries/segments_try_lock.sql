-- segments_try_lock: lets one broker at a time change the tables of a partition, until the transaction ends.
-- $1 partition_id bigint
-- False: somebody else is at it. A transaction-level advisory lock, so that publishes do not wait for it.
SELECT pg_try_advisory_xact_lock(hashtextextended('laneway.segment', $1)) AS locked
