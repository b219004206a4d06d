-- trace_cuts_try_lock: lets one broker at a time change the cuts of the trace index, until the transaction ends.
-- False: somebody else is at it. A transaction-level advisory lock, so that publishes do not wait for it.
SELECT pg_try_advisory_xact_lock(hashtextextended('laneway.trace_cut', 0)) AS locked
