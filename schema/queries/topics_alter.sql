-- topics_alter: changes settings of a topic. What is null stays as it is; 0 takes a retention, a limit or an expiry away, and
-- -1 the retention of what is completed, whose grace may be 0.
-- $1 topic_id bigint, $2 payload_bytes_max integer, $3 retention_age_ms bigint, $4 retention_bytes bigint,
-- $5 dedup_window_ms bigint, $6 delivery_times boolean, $7 max_backlog_messages bigint, $8 max_backlog_bytes bigint,
-- $9 max_stored_bytes bigint, $10 retention_completed_ms bigint, $11 group_expiry_ms bigint,
-- $12 labels text (JSON, merged; a null value takes a label away), $13 labels_max integer
-- $14 encryption text
-- Count 0: the topic is gone, or would have too many labels. Order: topics_lock before this one; if $14 is given, topics_lock_partitions,
-- too: what was in a flush then is committed, and what comes later finds what its partition demands.
WITH partitions AS (
    UPDATE laneway.partition
    SET encrypted_at = CASE WHEN $14 <> 'none' THEN clock_timestamp() END
    WHERE topic_id = $1 AND $14 IS NOT NULL AND (encrypted_at IS NULL) = ($14 <> 'none')
)
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
    group_expiry_ms = nullif(coalesce($11, group_expiry_ms), 0),
    labels = jsonb_strip_nulls(labels || coalesce($12, '{}')::jsonb),
    changed_at = CASE WHEN $12 IS NULL THEN changed_at ELSE clock_timestamp() END,
    encryption = coalesce($14, encryption)
WHERE topic_id = $1 AND deleted_at IS NULL
  AND (
      $12 IS NULL
      OR (SELECT count(*) FROM jsonb_object_keys(jsonb_strip_nulls(labels || $12::jsonb))) <= $13
  )
