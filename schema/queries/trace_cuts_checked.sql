-- trace_cuts_checked: remembers that a closed cut was looked at.
-- $1 cut_id bigint
UPDATE laneway.trace_cut SET checked_at = clock_timestamp() WHERE cut_id = $1
