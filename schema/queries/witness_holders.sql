-- witness_holders: the lanes of a topic that somebody holds, and under which epoch, for the verifier.
-- $1 topic text
-- No row: nobody holds any. Locks nothing.
SELECT g.name AS group_name, p.number, l.epoch
FROM laneway.lane l
JOIN laneway.consumer_group g USING (group_id)
JOIN laneway.topic t USING (topic_id)
JOIN laneway.partition p ON p.partition_id = l.partition_id
WHERE t.name = $1 AND t.deleted_at IS NULL AND l.session_id IS NOT NULL
