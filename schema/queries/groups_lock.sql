-- groups_lock: lets one broker at a time decide who gets which lane of a group.
-- $1 group_id bigint
-- No row: the group is gone. Locks its row.
SELECT group_id FROM laneway.consumer_group WHERE group_id = $1 FOR NO KEY UPDATE
