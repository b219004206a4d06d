-- schedules_look: what is due first, and which partitions have something that is due now.
-- $1 from_at timestamptz, $2 busy bigint[] (partitions that somebody else holds), $3 limit bigint,
-- $4 held bigint[] (partitions of topics that are full)
-- Nothing that waits is due before $1: what was taken from there stays in the index as long as somebody's snapshot sees it.
-- One row. first_due_at is null: nothing waits from $1 on; first_in_us leaves out what is paused or held.
-- limited_*: those of the partitions whose topic has limits, with its name, and what of them is due. Locks nothing.
WITH due AS MATERIALIZED (
    SELECT
        s.partition_id, p.topic_id,
        octet_length(s.payload) + coalesce(octet_length(s.key), 0) + coalesce(octet_length(s.headers), 0) AS bytes
    FROM laneway.schedule s
    JOIN laneway.partition p USING (partition_id)
    WHERE s.due_at >= $1 AND s.due_at <= statement_timestamp()
      AND p.deleted_at IS NULL AND p.paused_at IS NULL
      AND s.partition_id <> ALL ($2::bigint[]) AND s.partition_id <> ALL ($4::bigint[])
    ORDER BY s.due_at, s.schedule_id
    LIMIT $3
),
limited AS MATERIALIZED (
    SELECT d.partition_id, t.name, d.messages, d.bytes
    FROM (
        SELECT partition_id, topic_id, count(*) AS messages, sum(bytes)::bigint AS bytes FROM due GROUP BY partition_id, topic_id
    ) AS d
    JOIN laneway.topic t USING (topic_id)
    WHERE t.max_backlog_messages IS NOT NULL OR t.max_backlog_bytes IS NOT NULL OR t.max_stored_bytes IS NOT NULL
    ORDER BY d.partition_id
)
SELECT
    statement_timestamp() AS looked_at,
    first.due_at AS first_due_at,
    (extract(epoch FROM running.due_at - clock_timestamp()) * 1000000)::bigint AS first_in_us,
    ARRAY(SELECT DISTINCT due.partition_id FROM due) AS partition_ids,
    ARRAY(SELECT partition_id FROM limited) AS limited_partition_ids,
    ARRAY(SELECT name FROM limited) AS limited_topics,
    ARRAY(SELECT messages FROM limited) AS limited_messages,
    ARRAY(SELECT bytes FROM limited) AS limited_bytes
FROM (SELECT 1) AS one
LEFT JOIN LATERAL (
    SELECT s.due_at
    FROM laneway.schedule s
    WHERE s.due_at >= $1
    ORDER BY s.due_at, s.schedule_id
    LIMIT 1
) AS first ON true
LEFT JOIN LATERAL (
    SELECT s.due_at
    FROM laneway.schedule s
    JOIN laneway.partition p USING (partition_id)
    WHERE s.due_at >= $1 AND p.paused_at IS NULL AND s.partition_id <> ALL ($4::bigint[])
    ORDER BY s.due_at, s.schedule_id
    LIMIT 1
) AS running ON true
