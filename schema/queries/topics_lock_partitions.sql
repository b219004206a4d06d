-- topics_lock_partitions: waits for the flushes under way to the partitions of a topic, and keeps others out.
-- $1 topic_id bigint
-- A row per partition. Locks partition rows by id, until commit.
SELECT partition_id FROM laneway.partition WHERE topic_id = $1 ORDER BY partition_id FOR NO KEY UPDATE
