-- lanes_resume_at: where lanes go on: what was committed, what was acknowledged beyond, by steps too, what retention has left.
-- $1 group_id bigint, $2 partition_ids bigint[], $3 broker_id uuid
-- Rows: one per lane that this broker holds. Read after the statement that took the lanes, because it must see the last commit of the old holder.
SELECT
    l.partition_id, l.epoch, l.session_id, l.suspect_until,
    coalesce(c.committed_offset, l.first_offset) AS committed_offset,
    (coalesce(c.acked, '{}') + coalesce(s.acked, '{}'))::text AS acked,
    p.start_offset
FROM laneway.lane l
JOIN laneway.partition p USING (partition_id)
LEFT JOIN LATERAL (
    SELECT lc.epoch, lc.committed_offset, lc.acked
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
WHERE l.group_id = $1 AND l.partition_id = ANY ($2) AND l.broker_id = $3
