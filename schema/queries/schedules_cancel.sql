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
)
SELECT schedule_id FROM gone
