-- parked_keys_list: parked keys by id, after a given one, each with the copy that it failed at: the one with
-- the most attempts, else the first.
-- $1 topic_id bigint (null: of every topic), $2 group_name text (null: of every group), $3 after bigint, $4 limit bigint
-- No row: the end of the list. Locks nothing. Two index descents per key of the page.
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
WHERE t.deleted_at IS NULL AND ($1 IS NULL OR t.topic_id = $1) AND ($2 IS NULL OR g.name = $2) AND k.parked_id > $3
ORDER BY k.parked_id
LIMIT $4
