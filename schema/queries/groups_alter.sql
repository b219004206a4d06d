-- groups_alter: changes settings of a group. What is null stays as it is.
-- $1 group_id bigint, $2 ack_deadline_ms bigint, $3 max_attempts integer, $4 backoff_base_ms bigint,
-- $5 backoff_factor double precision, $6 backoff_cap_ms bigint, $7 on_failure text, $8 capacity text, $9 delay_ms bigint,
-- $10 window_ms bigint, $11 window_max_ms bigint, $12 max_age_ms bigint, $13 on_expiry text, $14 ordering text
-- Count 0: the group is gone. Locks its row. Order: groups_lock or groups_close, and the check of what stays, before this one.
UPDATE laneway.consumer_group
SET ack_deadline_ms = coalesce($2, ack_deadline_ms),
    max_attempts = coalesce($3, max_attempts),
    backoff_base_ms = coalesce($4, backoff_base_ms),
    backoff_factor = coalesce($5, backoff_factor),
    backoff_cap_ms = coalesce($6, backoff_cap_ms),
    on_failure = coalesce($7::laneway.failure_policy, on_failure),
    capacity = coalesce($8::laneway.group_capacity, capacity),
    delay_ms = coalesce($9, delay_ms),
    window_ms = coalesce($10, window_ms),
    window_max_ms = coalesce($11, window_max_ms),
    max_age_ms = coalesce($12, max_age_ms),
    on_expiry = coalesce($13, on_expiry),
    ordering = coalesce($14, ordering)
WHERE group_id = $1
