-- heads_trim: drops the heads of messages that retention has dropped, apart from the newest of the partition.
-- $1 partition_id bigint, $2 start_offset bigint
-- Count of rows = heads gone. Locks the rows that it deletes.
DELETE FROM laneway.head h
WHERE h.partition_id = $1
  AND h.next_offset < $2
  AND (h.published_at, h.next_offset) < (
      SELECT n.published_at, n.next_offset
      FROM laneway.head n
      WHERE n.partition_id = $1
      ORDER BY n.published_at DESC, n.next_offset DESC
      LIMIT 1
  )
