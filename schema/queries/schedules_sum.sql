-- schedules_sum: how many messages wait for their time, topic by topic.
-- No parameters. No row: no topic has ever had any. Locks nothing; one look into the index for each partition that has had schedules,
-- and no schedule is read.
WITH RECURSIVE newest AS (
    (
        SELECT partition_id, scheduled
        FROM laneway.schedule_total
        ORDER BY partition_id DESC, number DESC
        LIMIT 1
    )
    UNION ALL
    SELECT next.partition_id, next.scheduled
    FROM newest
    CROSS JOIN LATERAL (
        SELECT total.partition_id, total.scheduled
        FROM laneway.schedule_total total
        WHERE total.partition_id < newest.partition_id
        ORDER BY total.partition_id DESC, total.number DESC
        LIMIT 1
    ) next
)
SELECT t.name AS topic, sum(newest.scheduled)::bigint AS scheduled
FROM newest
JOIN laneway.partition p USING (partition_id)
JOIN laneway.topic t USING (topic_id)
WHERE t.deleted_at IS NULL
GROUP BY t.name
