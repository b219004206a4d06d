-- schedules_list: schedules of a topic by id, after a given one, within a count and a sum of bytes.
-- $1 topic_id bigint (null: of every topic), $2 after bigint, $3 limit bigint, $4 bytes bigint
-- The first comes whatever its size. `found` counts one more than the limit if there are more. No row: the end of the list.
-- Why topic by topic: each is one descent of its index, whether one is asked for or all. Locks nothing.
WITH candidate AS (
    SELECT found.schedule_id, found.bytes
    FROM laneway.topic t
    CROSS JOIN LATERAL (
        SELECT
            s.schedule_id,
            octet_length(s.payload) + coalesce(octet_length(s.key), 0) + coalesce(octet_length(s.headers), 0) AS bytes
        FROM laneway.schedule s
        WHERE s.topic_id = t.topic_id AND s.schedule_id > $2
        ORDER BY s.schedule_id
        LIMIT $3 + 1
    ) found
    WHERE t.deleted_at IS NULL AND ($1 IS NULL OR t.topic_id = $1)
    ORDER BY found.schedule_id
    LIMIT $3 + 1
),
sized AS (
    SELECT
        schedule_id,
        sum(bytes) OVER (ORDER BY schedule_id) AS bytes_up_to_it,
        row_number() OVER (ORDER BY schedule_id) AS place,
        count(*) OVER () AS found
    FROM candidate
)
SELECT
    s.schedule_id, t.name AS topic, p.number, s.partition_id, s.due_at, s.scheduled_at,
    0::bigint AS "offset", s.scheduled_at AS published_at, s.trace_id, s.cause_partition_id, s.cause_offset, s.key,
    s.transaction_id, s.headers, s.content_type, s.payload, s.producer, s.ttl_ms, s.data_key_id,
    sized.found
FROM sized
JOIN laneway.schedule s USING (schedule_id)
JOIN laneway.topic t USING (topic_id)
JOIN laneway.partition p USING (partition_id)
WHERE sized.place <= $3 AND (sized.bytes_up_to_it <= $4 OR sized.place = 1)
ORDER BY s.schedule_id
