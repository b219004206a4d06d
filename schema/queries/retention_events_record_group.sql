-- retention_events_record_group: keeps that a group was deleted because nobody used it.
-- $1 group_id bigint
-- Count: 1. In the transaction that deletes the group, before it does. Locks the topic row against its deletion.
INSERT INTO laneway.retention_event (topic_id, reason, group_name)
SELECT g.topic_id, 'inactive', g.name
FROM laneway.consumer_group g
WHERE g.group_id = $1
