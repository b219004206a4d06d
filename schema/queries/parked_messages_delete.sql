-- parked_messages_delete: copies that are done. The lane's row is locked and fenced by the transaction.
-- $1 group_id bigint, $2 partition_id bigint, $3 offsets bigint[]
WITH gone AS (
    DELETE FROM laneway.parked_message
    WHERE group_id = $1 AND partition_id = $2 AND "offset" = ANY ($3)
    RETURNING parked_offset
)
UPDATE laneway.parked_key k
SET messages = k.messages - n.messages
FROM (SELECT parked_offset, count(*) AS messages FROM gone GROUP BY parked_offset) n
WHERE k.group_id = $1 AND k.partition_id = $2 AND k.parked_offset = n.parked_offset
