-- topics_alter: changes settings of a topic. What is null stays as it is; 0 takes a retention, a limit or an expiry away, and
-- -1 the retention of what is completed, whose grace may be 0.
-- $1 topic_id bigint, $2 payload_bytes_max integer, $3 retention_age_ms bigint, $4 retention_bytes bigint,
-- $5 dedup_window_ms bigint, $6 delivery_times boolean, $7 max_backlog_messages bigint, $8 max_backlog_bytes bigint,
-- $9 max_stored_bytes bigint, $10 retention_completed_ms bigint, $11 group_expiry_ms bigint
-- Count 0: the topic is gone. Order: topics_lock before this one.
UPDATE laneway.topic
SET payload_bytes_max = coalesce($2, payload_bytes_max),
    retention_age_ms = nullif(coalesce($3, retention_age_ms), 0),
    retention_bytes = nullif(coalesce($4, retention_bytes), 0),
    dedup_window_ms = coalesce($5, dedup_window_ms),
    delivery_times = coalesce($6, delivery_times),
    max_backlog_messages = nullif(coalesce($7, max_backlog_messages), 0),
    max_backlog_bytes = nullif(coalesce($8, max_backlog_bytes), 0),
    max_stored_bytes = nullif(coalesce($9, max_stored_bytes), 0),
    retention_completed_ms = nullif(coalesce($10, retention_completed_ms), -1),
    group_expiry_ms = nullif(coalesce($11, group_expiry_ms), 0)
WHERE topic_id = $1 AND deleted_at IS NULL
