-- groups_delete: drops a group with its members, lanes, commits and attempts; its dead letters stay.
-- $1 group_id bigint
-- Count: 1. Locks the rows that it deletes. Order: groups_close, then lanes_close, each in a statement before this one, so
-- that a commit which held its lane meanwhile is seen and goes too.
WITH commits AS (
    DELETE FROM laneway.lane_commit WHERE group_id = $1
),
steps AS (
    DELETE FROM laneway.step_ack WHERE group_id = $1
)
DELETE FROM laneway.consumer_group WHERE group_id = $1
