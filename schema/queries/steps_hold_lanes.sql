-- steps_hold_lanes: keeps lanes as they are, and says whether each still has the epoch that a step names.
-- $1 group_ids bigint[], $2 partition_ids bigint[], $3 epochs bigint[]
-- Rows: one per lane that exists. Waits for whoever is at work on them, up to lock_timeout: after that, a try of the step
-- which was under way is visible. Locks lane rows by group and partition, until commit.
SELECT l.epoch = w.epoch AS stands
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS w (group_id, partition_id, epoch)
JOIN laneway.lane l ON l.group_id = w.group_id AND l.partition_id = w.partition_id
ORDER BY l.group_id, l.partition_id
FOR NO KEY UPDATE OF l
