-- topics_list: topics by name, after a given one, with their partitions in order.
-- $1 after text ('' for the first page), $2 limit bigint, $3 labels text (JSON; those with all of these)
-- No row: the end of the list. Locks nothing.
SELECT
    t.topic_id, t.name, t.payload_bytes_max, t.segment_messages, t.retention_age_ms, t.retention_bytes,
    t.dedup_window_ms, t.delivery_times, t.created_at, t.paused_at, t.max_backlog_messages, t.max_backlog_bytes, t.max_stored_bytes,
    t.retention_completed_ms, t.group_expiry_ms, t.labels::text AS labels, t.encryption,
    (SELECT array_agg(p.partition_id ORDER BY p.number) FROM laneway.partition p WHERE p.topic_id = t.topic_id) AS partition_ids
FROM laneway.topic t
WHERE t.name > $1 AND t.deleted_at IS NULL AND t.labels @> $3::jsonb
ORDER BY t.name
LIMIT $2
