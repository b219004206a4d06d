-- groups_at_rest: whether a group can be ordered in another way. Its row is locked, so that nobody joins meanwhile.
-- $1 group_id bigint, $2 ordering text
-- No row: the group is gone, or is ordered so already. Locks nothing.
SELECT
    EXISTS (SELECT FROM laneway.member m WHERE m.group_id = g.group_id)
        OR EXISTS (
            SELECT FROM laneway.lane l
            WHERE l.group_id = g.group_id AND (l.session_id IS NOT NULL OR l.popped_at IS NOT NULL)
        ) AS in_use,
    EXISTS (SELECT FROM laneway.parked_key k WHERE k.group_id = g.group_id) AS has_parked
FROM laneway.consumer_group g
WHERE g.group_id = $1 AND g.ordering <> $2
