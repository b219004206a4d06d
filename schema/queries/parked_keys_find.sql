-- parked_keys_find: one parked key of a topic that still exists, with the copy that it failed at: the one with the most attempts, else the first.
-- $1 parked_id bigint
-- No row: there is none of that id. Locks nothing.
SELECT
    k.parked_id, t.name AS topic, g.name AS group_name, p.number, k.partition_id, k.state, k.messages, k.parked_at,
    k.key AS key_name, m."offset", m.attempts, m.reason, m.published_at, m.trace_id, m.cause_partition_id, m.cause_offset, m.key,
    m.transaction_id, m.headers, m.content_type, m.payload, m.producer, NULL::bigint AS ttl_ms, m.data_key_id
FROM laneway.parked_key k
JOIN laneway.consumer_group g USING (group_id)
JOIN laneway.topic t USING (topic_id)
JOIN laneway.partition p ON p.partition_id = k.partition_id
LEFT JOIN LATERAL (
    (
        SELECT copy.*
        FROM laneway.parked_message copy
        WHERE copy.group_id = k.group_id AND copy.partition_id = k.partition_id AND copy.parked_offset = k.parked_offset
          AND copy.attempts > 0
        ORDER BY copy.attempts DESC, copy."offset"
        LIMIT 1
    )
    UNION ALL
    (
        SELECT copy.*
        FROM laneway.parked_message copy
        WHERE copy.group_id = k.group_id AND copy.partition_id = k.partition_id AND copy.parked_offset = k.parked_offset
        ORDER BY copy."offset"
        LIMIT 1
    )
    ORDER BY attempts DESC
    LIMIT 1
) m ON true
WHERE k.parked_id = $1 AND t.deleted_at IS NULL
