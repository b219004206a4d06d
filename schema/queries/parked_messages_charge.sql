-- parked_messages_charge: a released copy has failed once more. The lane's row is locked and fenced by the transaction.
-- $1 group_id bigint, $2 partition_id bigint, $3 offset bigint, $4 attempts integer, $5 reason text, $6 delay_ms bigint
UPDATE laneway.parked_message
SET attempts = $4, reason = $5, retry_at = clock_timestamp() + $6 * interval '1 millisecond'
WHERE group_id = $1 AND partition_id = $2 AND "offset" = $3
