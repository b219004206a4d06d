-- topics_lock_lanes: takes the lanes of a topic, before they go with it; from here on none of them commits.
-- $1 topic_id bigint
-- No row: it has none. Locks lane rows by group and partition. Order: topics_lock_groups before this one.
SELECT l.partition_id
FROM laneway.lane l
JOIN laneway.consumer_group g USING (group_id)
WHERE g.topic_id = $1
ORDER BY l.group_id, l.partition_id
FOR UPDATE OF l
