-- topics_forget: the last step of a deleted topic, once nothing belongs to it any more.
-- $1 topic_id bigint
-- Count 0: something is left, or another broker was faster. Locks the topic row.
DELETE FROM laneway.topic t
WHERE t.topic_id = $1 AND t.deleted_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM laneway.partition p WHERE p.topic_id = t.topic_id)
  AND NOT EXISTS (SELECT FROM laneway.dead_letter d WHERE d.topic_id = t.topic_id)
  AND NOT EXISTS (SELECT FROM laneway.consumer_group g WHERE g.topic_id = t.topic_id)
