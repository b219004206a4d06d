-- schedules_cancel: takes a schedule out before it is due; nothing is appended.
-- $1 schedule_id bigint
-- Its transaction id stays known for a window from now: a publish of it that comes again is not a new one.
-- No row: it was appended, or cancelled before. Locks: the caller holds the row of its partition.
WITH gone AS (
    DELETE FROM laneway.schedule
    WHERE schedule_id = $1
    RETURNING partition_id, schedule_id, transaction_id
),
ids AS (
    UPDATE laneway.transaction_seen seen
    SET published_at = least(seen.published_at, clock_timestamp())
    FROM gone
    WHERE seen.partition_id = gone.partition_id AND seen.transaction_id = gone.transaction_id
      AND seen."offset" = -gone.schedule_id
),
totals AS (
    INSERT INTO laneway.schedule_total (partition_id, number, scheduled)
    SELECT changed.partition_id, coalesce(t.number, 0) + 1, greatest(coalesce(t.scheduled, 0) - changed.messages, 0)
    FROM (SELECT partition_id, 1 AS messages FROM gone) AS changed
    LEFT JOIN LATERAL (
        SELECT total.number, total.scheduled
        FROM laneway.schedule_total total
        WHERE total.partition_id = changed.partition_id
        ORDER BY total.number DESC
        LIMIT 1
    ) t ON true
    RETURNING partition_id, number
),
thinned AS (
    DELETE FROM laneway.schedule_total old
    USING totals
    WHERE old.partition_id = totals.partition_id AND totals.number % 64 = 0
      AND old.number >= totals.number - 64 AND old.number < totals.number
)
SELECT schedule_id FROM gone
