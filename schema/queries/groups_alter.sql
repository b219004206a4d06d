-- groups_alter: changes settings of a group. What is null stays as it is.
-- $1 group_id bigint, $2 ack_deadline_ms bigint, $3 max_attempts integer, $4 backoff_base_ms bigint,
-- $5 backoff_factor double precision, $6 backoff_cap_ms bigint, $7 on_failure text, $8 capacity text
-- Count 0: the group is gone. Locks its row.
UPDATE laneway.consumer_group
SET ack_deadline_ms = coalesce($2, ack_deadline_ms),
    max_attempts = coalesce($3, max_attempts),
    backoff_base_ms = coalesce($4, backoff_base_ms),
    backoff_factor = coalesce($5, backoff_factor),
    backoff_cap_ms = coalesce($6, backoff_cap_ms),
    on_failure = coalesce($7::laneway.failure_policy, on_failure),
    capacity = coalesce($8::laneway.group_capacity, capacity)
WHERE group_id = $1
