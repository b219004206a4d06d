-- attempts_list: the messages of some lanes that have failed and are not done.
-- $1 group_id bigint, $2 partition_ids bigint[]
-- No row: none. Locks nothing.
SELECT
    partition_id, "offset", attempts, reason,
    greatest((extract(epoch FROM retry_at - clock_timestamp()) * 1000)::bigint, 0) AS retry_in_ms
FROM laneway.attempt
WHERE group_id = $1 AND partition_id = ANY ($2)
ORDER BY partition_id, "offset"
