-- schedules_look: what is due first, and which partitions have something that is due now.
-- $1 from_at timestamptz, $2 busy bigint[] (partitions that somebody else holds), $3 limit bigint
-- Nothing that waits is due before $1: what was taken from there stays in the index as long as somebody's snapshot sees it.
-- One row. first_due_at is null: nothing waits from $1 on; first_in_us leaves out what is paused. Locks nothing.
SELECT
    statement_timestamp() AS looked_at,
    first.due_at AS first_due_at,
    (extract(epoch FROM running.due_at - clock_timestamp()) * 1000000)::bigint AS first_in_us,
    ARRAY(
        SELECT DISTINCT due.partition_id
        FROM (
            SELECT s.partition_id
            FROM laneway.schedule s
            JOIN laneway.partition p USING (partition_id)
            WHERE s.due_at >= $1 AND s.due_at <= statement_timestamp()
              AND p.deleted_at IS NULL AND p.paused_at IS NULL AND s.partition_id <> ALL ($2::bigint[])
            ORDER BY s.due_at, s.schedule_id
            LIMIT $3
        ) AS due
    ) AS partition_ids
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
    WHERE s.due_at >= $1 AND p.paused_at IS NULL
    ORDER BY s.due_at, s.schedule_id
    LIMIT 1
) AS running ON true
