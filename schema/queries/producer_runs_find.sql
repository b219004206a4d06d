-- producer_runs_find: where the messages of a producer were stored the first time.
-- $1 partition_id bigint, $2 producer_id uuid, $3 first_sequence bigint, $4 last_sequence bigint
-- No row: their runs have left the window. Locks nothing.
SELECT first_sequence, last_sequence, first_offset
FROM laneway.producer_run
WHERE partition_id = $1 AND producer_id = $2 AND last_sequence >= $3 AND first_sequence <= $4
ORDER BY last_sequence
