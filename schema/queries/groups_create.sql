-- groups_create: makes a group with a lane for each partition of its topic.
-- $1 topic_id bigint, $2 name text, $3 ack_deadline_ms bigint, $4 max_attempts integer, $5 backoff_base_ms bigint,
-- $6 backoff_factor double precision, $7 backoff_cap_ms bigint, $8 on_failure text,
-- $9 partition_ids bigint[], $10 first_offsets bigint[] (null: after the newest message), $11 capacity text,
-- $12 delay_ms bigint, $13 window_ms bigint, $14 window_max_ms bigint, $15 max_age_ms bigint, $16 on_expiry text,
-- $17 ordering text
-- No row: there is such a group already, or the topic was deleted; nothing happened. A start below what retention has kept
-- becomes the start. Locks the topic row, shared, so that it is not deleted meanwhile.
WITH made AS (
    INSERT INTO laneway.consumer_group (
        topic_id, name, ack_deadline_ms, max_attempts, backoff_base_ms, backoff_factor, backoff_cap_ms, on_failure,
        capacity, delay_ms, window_ms, window_max_ms, max_age_ms, on_expiry, ordering
    )
    SELECT
        t.topic_id, $2, $3, $4, $5, $6, $7, $8::laneway.failure_policy, $11::laneway.group_capacity, $12, $13, $14, $15, $16,
        $17
    FROM laneway.topic t
    WHERE t.topic_id = $1 AND t.deleted_at IS NULL
    FOR SHARE
    ON CONFLICT (topic_id, name) DO NOTHING
    RETURNING group_id
),
lanes AS (
    INSERT INTO laneway.lane (group_id, partition_id, first_offset)
    SELECT
        made.group_id, w.partition_id,
        greatest(coalesce(w.first_offset, h.next_offset, 0), p.start_offset)
    FROM made
    CROSS JOIN unnest($9::bigint[], $10::bigint[]) AS w (partition_id, first_offset)
    JOIN laneway.partition p ON p.partition_id = w.partition_id
    LEFT JOIN LATERAL (
        SELECT head.next_offset
        FROM laneway.head
        WHERE head.partition_id = w.partition_id
        ORDER BY head.published_at DESC, head.next_offset DESC
        LIMIT 1
    ) h ON true
)
SELECT group_id FROM made
