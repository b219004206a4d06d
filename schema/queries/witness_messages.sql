-- witness_messages: everything that a topic holds, for the verifier.
-- $1 topic text
-- No row: the topic is empty, or there is none. Locks nothing.
SELECT p.number, m."offset", m.payload, m.trace_id
FROM laneway.topic t
JOIN laneway.partition p USING (topic_id)
JOIN laneway.message m USING (partition_id)
WHERE t.name = $1 AND t.deleted_at IS NULL
