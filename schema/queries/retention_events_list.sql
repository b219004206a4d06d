-- retention_events_list: what retention has dropped of a topic, newest first, before a given event.
-- $1 topic_id bigint, $2 before_id bigint (null: from the newest on), $3 limit bigint
-- No row: the end of the history. Locks nothing.
SELECT event_id, reason, partition, from_offset, to_offset, bytes, group_name, dropped_at
FROM laneway.retention_event
WHERE topic_id = $1 AND ($2 IS NULL OR event_id < $2)
ORDER BY event_id DESC
LIMIT $3
