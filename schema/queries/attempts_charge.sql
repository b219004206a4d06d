-- attempts_charge: a message has failed once more. The lane's row is locked and fenced by the transaction.
-- $1 group_id bigint, $2 partition_id bigint, $3 offset bigint, $4 attempts integer, $5 reason text, $6 delay_ms bigint
INSERT INTO laneway.attempt (group_id, partition_id, "offset", attempts, reason, retry_at)
VALUES ($1, $2, $3, $4, $5, clock_timestamp() + $6 * interval '1 millisecond')
ON CONFLICT (group_id, partition_id, "offset") DO UPDATE
SET attempts = excluded.attempts, reason = excluded.reason, failed_at = clock_timestamp(), retry_at = excluded.retry_at
