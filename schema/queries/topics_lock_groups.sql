-- topics_lock_groups: takes the groups of a topic, before they go with it.
-- $1 topic_id bigint
-- No row: it has none. Locks group rows by id, against new members and lanes too.
SELECT group_id FROM laneway.consumer_group WHERE topic_id = $1 ORDER BY group_id FOR UPDATE
