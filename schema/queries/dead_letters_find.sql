-- dead_letters_find: one dead letter of a topic that still exists.
-- $1 dead_letter_id bigint
-- No row: there is none of that id. Locks nothing.
SELECT
    d.dead_letter_id, t.name AS topic, p.number, d.partition_id, d.group_name, d.attempts, d.reason, d.dead_at,
    d."offset", d.published_at, d.trace_id, d.cause_partition_id, d.cause_offset, d.key, d.transaction_id, d.headers,
    d.content_type, d.payload, d.producer, NULL::bigint AS ttl_ms, d.data_key_id
FROM laneway.dead_letter d
JOIN laneway.topic t USING (topic_id)
JOIN laneway.partition p USING (partition_id)
WHERE d.dead_letter_id = $1 AND t.deleted_at IS NULL
