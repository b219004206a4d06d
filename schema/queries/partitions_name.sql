-- partitions_name: the topic and the number of a partition.
-- $1 partition_id bigint
-- No row: no such partition. Locks nothing.
SELECT t.name, p.number
FROM laneway.partition p
JOIN laneway.topic t USING (topic_id)
WHERE p.partition_id = $1 AND p.deleted_at IS NULL
