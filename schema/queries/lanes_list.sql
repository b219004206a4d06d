-- lanes_list: who holds the lanes of a group, and who is to have them.
-- $1 group_id bigint
-- No row: the group is gone. Locks nothing.
SELECT
    l.partition_id, p.number, l.epoch, l.session_id, l.broker_id, l.wanted_session, l.avoided_session,
    (extract(epoch FROM l.drain_until_at - clock_timestamp()) * 1000)::bigint AS drain_ms
FROM laneway.lane l
JOIN laneway.partition p USING (partition_id)
WHERE l.group_id = $1
ORDER BY l.partition_id
