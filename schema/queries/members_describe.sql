-- members_describe: the living members of a group, in the order in which they joined, with the partitions they hold.
-- $1 group_id bigint
-- No row: nobody is there. Locks nothing.
SELECT
    m.session_id, s.broker_id, m.joined_at,
    (
        SELECT coalesce(array_agg(p.number ORDER BY p.number), '{}')
        FROM laneway.lane l
        JOIN laneway.partition p USING (partition_id)
        WHERE l.group_id = m.group_id AND l.session_id = m.session_id
    ) AS numbers
FROM laneway.member m
JOIN laneway.session s USING (session_id)
JOIN laneway.broker b USING (broker_id)
WHERE m.group_id = $1 AND b.dead_at IS NULL
ORDER BY m.joined_at, m.session_id
