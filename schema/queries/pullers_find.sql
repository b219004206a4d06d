-- pullers_find: whether pullers are a member of a group now: somebody has pulled lately, or has a lane.
-- $1 group_id bigint, $2 pullers_ms bigint (how long they are a member)
-- No row: the group is gone. Locks nothing.
SELECT
    coalesce(g.pulled_at > clock_timestamp() - $2 * interval '1 millisecond', false)
    OR EXISTS (
        SELECT FROM laneway.lane l WHERE l.group_id = g.group_id AND l.popped_until_at > clock_timestamp()
    ) AS live
FROM laneway.consumer_group g
WHERE g.group_id = $1
