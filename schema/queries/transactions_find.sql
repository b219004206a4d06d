-- transactions_find: where messages of a transaction id stand, as far as the window remembers them, newest first.
-- $1 partition_ids bigint[], $2 transaction_id text
-- No row: none that is remembered; one that only waits for its time does not stand anywhere. Locks nothing.
SELECT partition_id, "offset"
FROM laneway.transaction_seen
WHERE partition_id = ANY ($1) AND transaction_id = $2 COLLATE "C" AND "offset" >= 0
ORDER BY published_at DESC, partition_id DESC, "offset" DESC
