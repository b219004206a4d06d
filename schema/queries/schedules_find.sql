-- schedules_find: one schedule of a topic that still exists.
-- $1 schedule_id bigint
-- No row: there is none of that id (any more). Locks nothing.
SELECT
    s.schedule_id, t.name AS topic, p.number, s.partition_id, s.due_at, s.scheduled_at,
    0::bigint AS "offset", s.scheduled_at AS published_at, s.trace_id, s.cause_partition_id, s.cause_offset, s.key,
    s.transaction_id, s.headers, s.content_type, s.payload, s.producer, s.ttl_ms, s.data_key_id
FROM laneway.schedule s
JOIN laneway.topic t USING (topic_id)
JOIN laneway.partition p USING (partition_id)
WHERE s.schedule_id = $1 AND t.deleted_at IS NULL
