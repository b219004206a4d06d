-- witness_waiting: messages of a topic that wait for their time, for the verifier.
-- $1 topic text
-- One row. Locks nothing.
SELECT count(*) AS waiting
FROM laneway.topic t
JOIN laneway.schedule s USING (topic_id)
WHERE t.name = $1 AND t.deleted_at IS NULL
