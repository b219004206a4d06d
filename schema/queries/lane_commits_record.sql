-- lane_commits_record: moves the committed offset of one lane whose row the transaction has locked.
-- $1 group_id bigint, $2 partition_id bigint, $3 epoch bigint, $4 number bigint, $5 committed_offset bigint, $6 acked text
INSERT INTO laneway.lane_commit (group_id, partition_id, epoch, number, committed_offset, acked)
VALUES ($1, $2, $3, $4, $5, $6::int8multirange)
ON CONFLICT DO NOTHING
