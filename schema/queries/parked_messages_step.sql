-- parked_messages_step: copies that steps of a flush acknowledge are done, unless steps_check has closed it.
-- $1 group_id bigint[], $2 partition_id bigint[], $3 offset bigint[]
-- The lanes are locked and fenced by the transaction.
WITH gone AS (
    DELETE FROM laneway.parked_message m
    USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS d (group_id, partition_id, "offset")
    WHERE m.group_id = d.group_id AND m.partition_id = d.partition_id AND m."offset" = d."offset"
      AND coalesce(current_setting('laneway.refused', true), '') = ''
    RETURNING m.group_id, m.partition_id, m.parked_offset
)
UPDATE laneway.parked_key k
SET messages = k.messages - g.messages
FROM (SELECT group_id, partition_id, parked_offset, count(*) AS messages FROM gone GROUP BY 1, 2, 3) g
WHERE k.group_id = g.group_id AND k.partition_id = g.partition_id AND k.parked_offset = g.parked_offset
