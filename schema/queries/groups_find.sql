-- groups_find: a group of a topic by name.
-- $1 topic_id bigint, $2 name text
-- No row: there is no such group. Locks nothing.
SELECT
    group_id, ack_deadline_ms, max_attempts, backoff_base_ms, backoff_factor, backoff_cap_ms, on_failure::text AS on_failure,
    capacity::text AS capacity, delay_ms, window_ms, window_max_ms, max_age_ms, on_expiry, ordering
FROM laneway.consumer_group
WHERE topic_id = $1 AND name = $2
