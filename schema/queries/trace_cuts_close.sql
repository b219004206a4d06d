-- trace_cuts_close: remembers that a cut takes no more blocks and has been frozen.
-- $1 cut_id bigint
UPDATE laneway.trace_cut SET closed_at = clock_timestamp() WHERE cut_id = $1
