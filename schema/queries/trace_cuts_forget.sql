-- trace_cuts_forget: takes a cut out of the catalogue; its table is dropped in the same transaction.
-- $1 cut_id bigint
-- Count 0: another broker was faster.
DELETE FROM laneway.trace_cut WHERE cut_id = $1
