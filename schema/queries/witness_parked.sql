-- witness_parked: keys of a topic's groups that are parked, or released and not done, for the verifier.
-- $1 topic text
-- One row. Locks nothing.
SELECT count(*) AS parked
FROM laneway.topic t
JOIN laneway.consumer_group g USING (topic_id)
JOIN laneway.parked_key k USING (group_id)
WHERE t.name = $1 AND t.deleted_at IS NULL
