-- witness_commits: how far each lane of a topic has come, for the verifier.
-- $1 topic text
-- No row: the topic has no group. Locks nothing.
SELECT g.name, p.number, coalesce(c.committed_offset, l.first_offset) AS committed_offset
FROM laneway.topic t
JOIN laneway.consumer_group g USING (topic_id)
JOIN laneway.lane l USING (group_id)
JOIN laneway.partition p ON p.partition_id = l.partition_id
LEFT JOIN LATERAL (
    SELECT lc.committed_offset
    FROM laneway.lane_commit lc
    WHERE lc.group_id = l.group_id AND lc.partition_id = l.partition_id
    ORDER BY lc.epoch DESC, lc.number DESC
    LIMIT 1
) c ON true
WHERE t.name = $1 AND t.deleted_at IS NULL
