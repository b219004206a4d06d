-- lanes_count: how many lanes there are, those of deleted topics left out.
-- Locks nothing. Reads every row of lane, which are few and small.
SELECT count(*) AS lanes
FROM laneway.lane l
JOIN laneway.consumer_group g USING (group_id)
JOIN laneway.topic t USING (topic_id)
WHERE t.deleted_at IS NULL
