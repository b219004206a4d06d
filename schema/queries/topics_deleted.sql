-- topics_deleted: topics whose names are free again and whose rows are still there.
-- No row: none. Locks nothing.
SELECT topic_id FROM laneway.topic WHERE deleted_at IS NOT NULL ORDER BY topic_id
