-- topics_lock: keeps others from growing a topic until the transaction ends.
-- $1 topic_id bigint
-- No row: the topic is gone. Locks the topic row.
SELECT topic_id FROM laneway.topic WHERE topic_id = $1 AND deleted_at IS NULL FOR NO KEY UPDATE
