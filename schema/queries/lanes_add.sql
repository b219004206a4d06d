-- lanes_add: gives a group the lanes of partitions that were born after it; they start at 0.
-- $1 group_id bigint
-- Count: how many were added.
INSERT INTO laneway.lane (group_id, partition_id, first_offset)
SELECT g.group_id, p.partition_id, 0
FROM laneway.consumer_group g
JOIN laneway.partition p USING (topic_id)
WHERE g.group_id = $1
  AND NOT EXISTS (SELECT FROM laneway.lane l WHERE l.group_id = g.group_id AND l.partition_id = p.partition_id)
ON CONFLICT (group_id, partition_id) DO NOTHING
