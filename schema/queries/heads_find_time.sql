-- heads_find_time: the last head before a moment; every message below its next_offset is older.
-- $1 partition_id bigint, $2 at timestamptz
-- No row: no head is older, start at the beginning. Locks nothing; one index descent.
SELECT next_offset
FROM laneway.head
WHERE partition_id = $1 AND published_at < $2
ORDER BY published_at DESC, next_offset DESC
LIMIT 1
