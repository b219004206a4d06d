-- groups_settings: what belongs to a group, as it is now, whether its topic keeps delivery times, and whether
-- one of them is paused.
-- $1 group_id bigint
-- No row: the group is gone. Locks nothing.
SELECT
    g.group_id, g.ack_deadline_ms, g.max_attempts, g.backoff_base_ms, g.backoff_factor, g.backoff_cap_ms,
    g.on_failure::text AS on_failure, g.capacity::text AS capacity, g.delay_ms, g.window_ms, g.window_max_ms, g.max_age_ms,
    g.on_expiry, g.ordering, t.delivery_times, g.paused_at IS NOT NULL OR t.paused_at IS NOT NULL AS paused
FROM laneway.consumer_group g
JOIN laneway.topic t USING (topic_id)
WHERE g.group_id = $1
