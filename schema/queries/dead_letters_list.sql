-- dead_letters_list: dead letters by id, after a given one, within a count and a sum of bytes.
-- $1 topic_id bigint (null: of every topic), $2 group_name text (null: of every group), $3 after bigint, $4 limit bigint,
-- $5 bytes bigint
-- The first comes whatever its size. `found` counts one more than the limit if there are more. No row: the end of the list.
-- Why topic by topic: each is one descent of its index, whether one is asked for or all. Locks nothing.
WITH candidate AS (
    SELECT found.dead_letter_id, found.bytes
    FROM laneway.topic t
    CROSS JOIN LATERAL (
        SELECT
            d.dead_letter_id,
            octet_length(d.payload) + coalesce(octet_length(d.key), 0) + coalesce(octet_length(d.headers), 0) AS bytes
        FROM laneway.dead_letter d
        WHERE d.topic_id = t.topic_id AND d.dead_letter_id > $3 AND ($2 IS NULL OR d.group_name = $2)
        ORDER BY d.dead_letter_id
        LIMIT $4 + 1
    ) found
    WHERE t.deleted_at IS NULL AND ($1 IS NULL OR t.topic_id = $1)
    ORDER BY found.dead_letter_id
    LIMIT $4 + 1
),
sized AS (
    SELECT
        dead_letter_id,
        sum(bytes) OVER (ORDER BY dead_letter_id) AS bytes_up_to_it,
        row_number() OVER (ORDER BY dead_letter_id) AS place,
        count(*) OVER () AS found
    FROM candidate
)
SELECT
    d.dead_letter_id, t.name AS topic, p.number, d.partition_id, d.group_name, d.attempts, d.reason, d.dead_at,
    d."offset", d.published_at, d.trace_id, d.cause_partition_id, d.cause_offset, d.key, d.transaction_id, d.headers,
    d.content_type, d.payload, d.producer, NULL::bigint AS ttl_ms, d.data_key_id,
    sized.found
FROM sized
JOIN laneway.dead_letter d USING (dead_letter_id)
JOIN laneway.topic t USING (topic_id)
JOIN laneway.partition p USING (partition_id)
WHERE sized.place <= $4 AND (sized.bytes_up_to_it <= $5 OR sized.place = 1)
ORDER BY d.dead_letter_id
