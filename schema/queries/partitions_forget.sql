-- partitions_forget: drops the row of a deleted partition, once nothing is left that only its id can find.
-- $1 partition_id bigint
-- Count 0: something is left, or another broker was faster. Locks the partition row.
DELETE FROM laneway.partition p
WHERE p.partition_id = $1 AND p.deleted_at IS NOT NULL
  AND to_regclass(format('laneway.message_p%s', p.partition_id)) IS NULL
  AND NOT EXISTS (SELECT FROM laneway.segment s WHERE s.partition_id = p.partition_id)
  AND NOT EXISTS (SELECT FROM laneway.head h WHERE h.partition_id = p.partition_id)
  AND NOT EXISTS (SELECT FROM laneway.producer_run r WHERE r.partition_id = p.partition_id)
  AND NOT EXISTS (SELECT FROM laneway.transaction_seen s WHERE s.partition_id = p.partition_id)
  AND NOT EXISTS (SELECT FROM laneway.dead_letter d WHERE d.partition_id = p.partition_id)
  AND NOT EXISTS (
      SELECT FROM laneway.schedule s WHERE s.topic_id = p.topic_id AND s.partition_id = p.partition_id
  )
  AND NOT EXISTS (SELECT FROM laneway.schedule_seen s WHERE s.partition_id = p.partition_id)
