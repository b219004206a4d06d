-- witness_drops: messages of parked keys that somebody has dropped, for the verifier.
-- $1 topic text
-- No row: none was. Locks nothing.
SELECT g.name, p.number, f."offset"
FROM laneway.topic t
JOIN laneway.consumer_group g USING (topic_id)
JOIN laneway.failure f USING (group_id)
JOIN laneway.partition p ON p.partition_id = f.partition_id
WHERE t.name = $1 AND t.deleted_at IS NULL AND f.outcome = 'drop'
