-- topics_create: makes a topic and its partition rows; tables come with the first publish.
-- $1 name text, $2 partitions integer, $3 payload_bytes_max integer, $4 segment_messages integer,
-- $5 retention_age_ms bigint, $6 retention_bytes bigint, $7 dedup_window_ms bigint, $8 delivery_times boolean,
-- $9 max_backlog_messages bigint, $10 max_backlog_bytes bigint, $11 max_stored_bytes bigint,
-- $12 retention_completed_ms bigint, $13 group_expiry_ms bigint, $14 labels text (JSON),
-- $15 encryption text
-- No row: the name is taken, nothing happened. Locks nothing that exists.
WITH made AS (
    INSERT INTO laneway.topic (
        name, payload_bytes_max, segment_messages, retention_age_ms, retention_bytes, dedup_window_ms, delivery_times,
        max_backlog_messages, max_backlog_bytes, max_stored_bytes, retention_completed_ms, group_expiry_ms, labels, encryption
    )
    VALUES ($1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14::jsonb, $15)
    ON CONFLICT (name) WHERE deleted_at IS NULL DO NOTHING
    RETURNING topic_id, encryption
),
parts AS (
    INSERT INTO laneway.partition (topic_id, number, encrypted_at)
    SELECT made.topic_id, n, CASE WHEN made.encryption <> 'none' THEN clock_timestamp() END
    FROM made, generate_series(0, $2 - 1) AS n
)
SELECT topic_id, pg_notify('laneway', 'topics') FROM made
