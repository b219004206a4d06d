-- lane_commits_thin: drops commits of a lane that newer ones have replaced.
-- $1 group_id bigint, $2 partition_id bigint, $3 epoch bigint, $4 since bigint, $5 before bigint
-- The caller knows that (epoch, before) is stored. Starts above what it dropped last, so that dead rows are not walked again.
DELETE FROM laneway.lane_commit
WHERE group_id = $1 AND partition_id = $2 AND (epoch < $3 OR (epoch = $3 AND number >= $4 AND number < $5))
