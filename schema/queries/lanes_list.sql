-- lanes_list: who holds the lanes of a group, who is to have them, and whether that is a living member.
-- $1 group_id bigint, $2 pullers uuid (whom the rows name for all pullers), $3 pullers_ms bigint (how long they are a member)
-- No row: the group is gone. Locks nothing.
SELECT
    l.partition_id, p.number, l.epoch, l.session_id, l.broker_id, l.wanted_session, l.avoided_session,
    (extract(epoch FROM l.drain_until_at - clock_timestamp()) * 1000)::bigint AS drain_ms,
    EXISTS (
        SELECT FROM laneway.member m
        JOIN laneway.session s USING (session_id)
        JOIN laneway.broker b USING (broker_id)
        WHERE m.group_id = l.group_id AND m.session_id = l.wanted_session AND b.dead_at IS NULL
    ) OR (l.wanted_session IS NOT DISTINCT FROM $2 AND (
        EXISTS (
            SELECT FROM laneway.consumer_group g
            WHERE g.group_id = l.group_id AND g.pulled_at > clock_timestamp() - $3 * interval '1 millisecond'
        )
        OR EXISTS (
            SELECT FROM laneway.lane o WHERE o.group_id = l.group_id AND o.popped_until_at > clock_timestamp()
        )
    )) AS wanted_lives,
    CASE
        WHEN l.popped_until_at IS NULL THEN 'none'
        WHEN l.popped_until_at > clock_timestamp() THEN 'open'
        ELSE 'expired'
    END AS pop
FROM laneway.lane l
JOIN laneway.partition p USING (partition_id)
WHERE l.group_id = $1
ORDER BY l.partition_id
