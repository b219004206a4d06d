-- pops_cut: what a puller was given ends sooner: what lies beyond comes again. The lane's row is locked and fenced.
-- $1 group_id bigint, $2 partition_id bigint, $3 end_offset bigint
UPDATE laneway.lane SET popped_end_offset = $3 WHERE group_id = $1 AND partition_id = $2
