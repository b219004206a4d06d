-- schedules_look: what is due now, which of it is first, and when to look again.
-- $1 from_at timestamptz, $2 busy bigint[] (partitions that somebody else holds), $3 limit bigint,
-- $4 held bigint[] (partitions that have to wait, of topics that are full for one)
-- Nothing that waits is due before $1: what was taken from there stays in the index as long as somebody's snapshot sees it.
-- One row. due_*: about as many rows as the limit, in the order of due times, with how late each is; of what is paused, busy or held, none.
-- first_due_at: of all that waits from $1 on; null: nothing does. first_in_us: until something is due that runs, or until it
-- is worth to look for it; null: nothing is ahead. limited_*: partitions with due rows whose topics have limits, by name.
-- Why two ways: the first rows of all cost one descent. Where so many of them have to wait that they hide the others, each
-- partition that runs is asked for its own first rows: what waits in a topic delays no other. Locks nothing.
WITH walked AS MATERIALIZED (
    SELECT
        s.partition_id, p.topic_id, s.due_at, s.schedule_id, s.bytes,
        p.partition_id IS NOT NULL AND p.deleted_at IS NULL AND p.paused_at IS NULL
            AND s.partition_id <> ALL ($2::bigint[]) AND s.partition_id <> ALL ($4::bigint[]) AS is_open
    FROM (
        SELECT
            partition_id, due_at, schedule_id,
            octet_length(payload) + coalesce(octet_length(key), 0) + coalesce(octet_length(headers), 0) AS bytes
        FROM laneway.schedule
        WHERE due_at >= $1 AND due_at <= statement_timestamp()
        ORDER BY due_at, schedule_id
        LIMIT $3
    ) AS s
    LEFT JOIN laneway.partition p USING (partition_id)
),
way AS MATERIALIZED (
    SELECT count(*) >= $3 AND NOT bool_and(is_open) AS by_partition FROM walked
),
waiting AS MATERIALIZED (
    SELECT p.partition_id, p.topic_id
    FROM laneway.partition p
    CROSS JOIN LATERAL (
        SELECT s.due_at
        FROM laneway.schedule s
        WHERE s.partition_id = p.partition_id AND s.due_at >= $1 AND s.due_at <= statement_timestamp()
        ORDER BY s.due_at, s.schedule_id
        LIMIT 1
    ) AS first
    WHERE (SELECT by_partition FROM way) AND p.deleted_at IS NULL AND p.paused_at IS NULL
      AND p.partition_id <> ALL ($2::bigint[]) AND p.partition_id <> ALL ($4::bigint[])
    ORDER BY first.due_at
    LIMIT $3
),
due AS MATERIALIZED (
    SELECT partition_id, topic_id, due_at, schedule_id, bytes
    FROM walked
    WHERE is_open AND NOT (SELECT by_partition FROM way)
    UNION ALL
    SELECT w.partition_id, w.topic_id, own.due_at, own.schedule_id, own.bytes
    FROM waiting w
    CROSS JOIN LATERAL (
        SELECT
            s.due_at, s.schedule_id,
            octet_length(s.payload) + coalesce(octet_length(s.key), 0) + coalesce(octet_length(s.headers), 0) AS bytes
        FROM laneway.schedule s
        WHERE s.partition_id = w.partition_id AND s.due_at >= $1 AND s.due_at <= statement_timestamp()
        ORDER BY s.due_at, s.schedule_id
        LIMIT (SELECT greatest($3 / greatest(count(*), 1), 1) FROM waiting)
    ) AS own
),
limited AS MATERIALIZED (
    SELECT d.partition_id, t.name
    FROM (SELECT DISTINCT partition_id, topic_id FROM due) AS d
    JOIN laneway.topic t USING (topic_id)
    WHERE t.max_backlog_messages IS NOT NULL OR t.max_backlog_bytes IS NOT NULL OR t.max_stored_bytes IS NOT NULL
),
ahead AS MATERIALIZED (
    SELECT
        s.due_at,
        p.partition_id IS NOT NULL AND p.deleted_at IS NULL AND p.paused_at IS NULL
            AND s.partition_id <> ALL ($4::bigint[]) AS is_running
    FROM (
        SELECT partition_id, due_at
        FROM laneway.schedule
        WHERE due_at >= $1 AND due_at > statement_timestamp()
        ORDER BY due_at, schedule_id
        LIMIT 64 -- if none of them runs, the last of them is worth a look
    ) AS s
    LEFT JOIN laneway.partition p USING (partition_id)
)
SELECT
    statement_timestamp() AS looked_at,
    least((SELECT min(due_at) FROM walked), (SELECT min(due_at) FROM ahead)) AS first_due_at,
    (
        SELECT
            (extract(epoch FROM
                coalesce(
                    min(due_at) FILTER (WHERE is_running),
                    CASE WHEN count(*) = 64 THEN greatest(max(due_at), clock_timestamp() + interval '10 milliseconds') END
                ) - clock_timestamp()
            ) * 1000000)::bigint
        FROM ahead
    ) AS first_in_us,
    ARRAY(SELECT partition_id FROM due ORDER BY due_at, schedule_id) AS due_partition_ids,
    ARRAY(SELECT bytes::bigint FROM due ORDER BY due_at, schedule_id) AS due_bytes,
    ARRAY(
        SELECT (extract(epoch FROM statement_timestamp() - due_at) * 1000000)::bigint FROM due ORDER BY due_at, schedule_id
    ) AS due_late_us,
    ARRAY(SELECT partition_id FROM limited ORDER BY partition_id) AS limited_partition_ids,
    ARRAY(SELECT name FROM limited ORDER BY partition_id) AS limited_topics
