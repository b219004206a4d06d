-- topics_drop_groups: drops the groups of a topic with their members, lanes, commits and attempts.
-- $1 topic_id bigint
-- Count of rows = groups gone. Locks the rows that it deletes. Order: topics_lock_lanes in a statement before this one, so
-- that a commit which held its lane meanwhile is seen and goes too.
WITH commits AS (
    DELETE FROM laneway.lane_commit
    WHERE group_id IN (SELECT group_id FROM laneway.consumer_group WHERE topic_id = $1)
),
steps AS (
    DELETE FROM laneway.step_ack
    WHERE group_id IN (SELECT group_id FROM laneway.consumer_group WHERE topic_id = $1)
)
DELETE FROM laneway.consumer_group WHERE topic_id = $1
