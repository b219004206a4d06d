-- members_list: the members of a group whose broker lives, in the order in which they joined, and whether each has lost its
-- connection and may come back.
-- $1 group_id bigint
-- No row: nobody is there. Locks nothing.
SELECT m.session_id, coalesce(s.away_until_at > clock_timestamp(), false) AS away
FROM laneway.member m
JOIN laneway.session s USING (session_id)
JOIN laneway.broker b USING (broker_id)
WHERE m.group_id = $1 AND b.dead_at IS NULL
ORDER BY m.joined_at, m.session_id
