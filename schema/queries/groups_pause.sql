-- groups_pause: nothing is delivered to a group from here on; its lanes stay with their holders.
-- $1 group_id bigint
-- Count 0: the group is gone. Locks its row.
UPDATE laneway.consumer_group SET paused_at = coalesce(paused_at, clock_timestamp()) WHERE group_id = $1
