-- parked_keys_sum: how many keys and messages are parked, group by group.
-- No parameters. No row: nothing is parked. Locks nothing.
SELECT t.name AS topic, g.name AS group_name, count(*) AS keys, sum(k.messages)::bigint AS messages
FROM laneway.parked_key k
JOIN laneway.consumer_group g USING (group_id)
JOIN laneway.topic t USING (topic_id)
GROUP BY t.name, g.name
