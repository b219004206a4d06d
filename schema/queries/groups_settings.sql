-- groups_settings: what belongs to a group, as it is now.
-- $1 group_id bigint
-- No row: the group is gone. Locks nothing.
SELECT
    group_id, ack_deadline_ms, max_attempts, backoff_base_ms, backoff_factor, backoff_cap_ms, on_failure::text AS on_failure
FROM laneway.consumer_group
WHERE group_id = $1
