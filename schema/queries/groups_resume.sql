-- groups_resume: a group is delivered to again.
-- $1 group_id bigint
-- Count 0: the group is gone. Locks its row.
UPDATE laneway.consumer_group SET paused_at = NULL WHERE group_id = $1
