-- lanes_close: takes the lanes of a group before they go with it; from here on none of them commits.
-- $1 group_id bigint
-- No row: it has none. Locks lane rows by partition. Order: groups_close before this one.
SELECT partition_id FROM laneway.lane WHERE group_id = $1 ORDER BY partition_id FOR UPDATE
