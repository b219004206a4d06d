-- failures_record: an attempt at a message has failed. The lane's row is locked and fenced by the transaction.
-- $1 group_id bigint, $2 partition_id bigint, $3 offset bigint, $4 attempt integer, $5 outcome text, $6 reason text,
-- $7 delivered_us bigint (null: unknown), $8 failed_us bigint (how long ago, when the transaction was begun)
INSERT INTO laneway.failure (group_id, partition_id, "offset", attempt, outcome, reason, delivered_at, failed_at)
VALUES (
    $1, $2, $3, $4, $5, $6,
    now() - $7 * interval '1 microsecond', now() - $8 * interval '1 microsecond'
)
