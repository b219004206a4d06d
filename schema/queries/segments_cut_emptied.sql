-- segments_cut_emptied: ends the open segment of a partition of which everything was purged, so that it can be dropped.
-- $1 partition_id bigint, $2 segment_id bigint
-- No row: a message has come since, or it was cut already; nothing happened. One row: the start, which stays.
-- Order: partitions_lock_waiting in a statement before this one, as with segments_cut; the caller detaches the table in the
-- same transaction. Locks the segment row.
WITH newest AS (
    SELECT h.next_offset, h.published_at
    FROM laneway.head h
    WHERE h.partition_id = $1
    ORDER BY h.published_at DESC, h.next_offset DESC
    LIMIT 1
)
UPDATE laneway.segment s
SET end_offset = newest.next_offset, sealed_at = clock_timestamp(), state = 'detached', last_published_at = newest.published_at
FROM newest, laneway.partition p
WHERE s.segment_id = $2 AND s.partition_id = $1 AND s.state = 'attached' AND s.sealed_at IS NULL
  AND p.partition_id = $1 AND p.start_offset = newest.next_offset
  AND s.first_offset < newest.next_offset AND s.end_offset > newest.next_offset
RETURNING p.start_offset
