-- schedules_move: gives a schedule another time.
-- $1 schedule_id bigint, $2 deliver_at timestamptz, $3 delay_ms bigint (one of both is null), $4 past_ms bigint,
-- $5 ahead_ms bigint
-- One row with its new `due_at`, or with `fault` ('past', 'far'), and then nothing happened. No row: it was appended or
-- cancelled. Locks: the caller holds the row of its partition.
WITH now AS MATERIALIZED (
    SELECT clock_timestamp() AS at
),
asked AS MATERIALIZED (
    SELECT
        s.schedule_id, s.partition_id, s.transaction_id, now.at,
        coalesce($2, now.at + $3::bigint * interval '1 millisecond') AS due_at
    FROM laneway.schedule s
    CROSS JOIN now
    WHERE s.schedule_id = $1
),
judged AS MATERIALIZED (
    SELECT
        asked.schedule_id, asked.partition_id, asked.transaction_id, greatest(asked.due_at, asked.at) AS due_at,
        CASE
            WHEN due_at < at - $4::bigint * interval '1 millisecond' THEN 'past'
            WHEN due_at > at + $5::bigint * interval '1 millisecond' THEN 'far'
        END AS fault
    FROM asked
),
moved AS (
    UPDATE laneway.schedule s
    SET due_at = judged.due_at
    FROM judged
    WHERE s.schedule_id = judged.schedule_id AND judged.fault IS NULL
),
ids AS (
    UPDATE laneway.transaction_seen seen
    SET published_at = judged.due_at
    FROM judged
    WHERE seen.partition_id = judged.partition_id AND seen.transaction_id = judged.transaction_id
      AND seen."offset" = -judged.schedule_id AND judged.fault IS NULL
)
SELECT fault, due_at FROM judged
