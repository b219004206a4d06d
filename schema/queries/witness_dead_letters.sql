-- witness_dead_letters: what the groups of a topic have given up, for the verifier.
-- $1 topic text
-- No row: nothing. Locks nothing.
SELECT d.group_name, p.number, d."offset", d.payload, d.trace_id
FROM laneway.topic t
JOIN laneway.dead_letter d USING (topic_id)
JOIN laneway.partition p ON p.partition_id = d.partition_id
WHERE t.name = $1 AND t.deleted_at IS NULL
