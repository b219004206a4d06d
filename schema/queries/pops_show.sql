-- pops_show: a lane as its pop has left it: what is done, how far it was given and until when. Read after pops_lock, which is a
-- statement of its own.
-- $1 group_id bigint, $2 partition_id bigint
-- One row. Locks nothing.
SELECT
    l.partition_id, l.epoch, l.suspect_until, p.start_offset, l.wanted_session, l.popped_end_offset,
    coalesce(c.committed_offset, l.first_offset) AS committed_offset,
    (coalesce(c.acked, '{}') + coalesce(s.acked, '{}'))::text AS acked,
    CASE WHEN c.epoch = l.epoch THEN c.number ELSE 0 END AS commits,
    coalesce(l.popped_until_at > clock_timestamp(), false) AS open,
    coalesce((extract(epoch FROM clock_timestamp() - l.popped_at) * 1000000)::bigint, 0) AS age_us
FROM laneway.lane l
JOIN laneway.partition p USING (partition_id)
LEFT JOIN LATERAL (
    SELECT lc.epoch, lc.number, lc.committed_offset, lc.acked
    FROM laneway.lane_commit lc
    WHERE lc.group_id = l.group_id AND lc.partition_id = l.partition_id
    ORDER BY lc.epoch DESC, lc.number DESC
    LIMIT 1
) c ON true
LEFT JOIN LATERAL (
    SELECT range_agg(int8range(sa.from_offset, sa.to_offset)) AS acked
    FROM laneway.step_ack sa
    WHERE sa.group_id = l.group_id AND sa.partition_id = l.partition_id AND sa.epoch >= coalesce(c.epoch, 0)
) s ON true
WHERE l.group_id = $1 AND l.partition_id = $2
