-- groups_close: takes a group before it goes; nobody joins it from here on.
-- $1 group_id bigint
-- No row: the group is gone. Locks its row, against new members and lanes too.
SELECT group_id FROM laneway.consumer_group WHERE group_id = $1 FOR UPDATE
