-- trace_cuts_open: the cuts whose pending entries have to be merged into their index: those that take or took blocks lately.
-- No row: none. Locks nothing.
SELECT cut_id, to_at < clock_timestamp() - interval '1 minute' AS over
FROM laneway.trace_cut
WHERE closed_at IS NULL AND from_at <= clock_timestamp()
ORDER BY from_at
