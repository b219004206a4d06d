-- topics_alter: changes settings of a topic. What is null stays as it is; 0 takes a retention away.
-- $1 topic_id bigint, $2 payload_bytes_max integer, $3 retention_age_ms bigint, $4 retention_bytes bigint,
-- $5 dedup_window_ms bigint, $6 delivery_times boolean
-- Count 0: the topic is gone. Order: topics_lock before this one.
UPDATE laneway.topic
SET payload_bytes_max = coalesce($2, payload_bytes_max),
    retention_age_ms = nullif(coalesce($3, retention_age_ms), 0),
    retention_bytes = nullif(coalesce($4, retention_bytes), 0),
    dedup_window_ms = coalesce($5, dedup_window_ms),
    delivery_times = coalesce($6, delivery_times)
WHERE topic_id = $1 AND deleted_at IS NULL
