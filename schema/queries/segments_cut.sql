-- segments_cut: ends the open segment of a quiet partition at the newest message, so that it can go.
-- $1 partition_id bigint, $2 segment_id bigint, $3 reason text (other than 'completed': its age must have expired)
-- No row: a message has come since or it is not the open segment, nothing happened. One row: the new start, and what went.
-- Order: partitions_lock_waiting in a statement before this one. A statement that waited for the lock itself would read
-- a head from before the wait, and cut off messages that were published meanwhile. The caller detaches the table in the
-- same transaction: until commit no flush can put a message into it. Locks the segment row.
WITH old AS (
    SELECT start_offset, start_bytes_total FROM laneway.partition WHERE partition_id = $1
),
newest AS (
    SELECT h.next_offset, h.bytes_total, h.published_at, t.retention_age_ms
    FROM laneway.head h
    JOIN laneway.partition p USING (partition_id)
    JOIN laneway.topic t USING (topic_id)
    WHERE h.partition_id = $1
    ORDER BY h.published_at DESC, h.next_offset DESC
    LIMIT 1
),
cut AS (
    UPDATE laneway.segment s
    SET end_offset = newest.next_offset, sealed_at = clock_timestamp(), state = 'detached',
        last_published_at = newest.published_at
    FROM newest
    WHERE s.segment_id = $2 AND s.partition_id = $1 AND s.state = 'attached' AND s.sealed_at IS NULL
      AND s.first_offset < newest.next_offset AND s.end_offset >= newest.next_offset
      AND (
          $3 = 'completed'
          OR newest.published_at < clock_timestamp() - make_interval(secs => newest.retention_age_ms / 1000.0)
      )
      AND NOT EXISTS (
          SELECT FROM laneway.segment older
          WHERE older.partition_id = $1 AND older.state = 'attached' AND older.first_offset < s.first_offset
      )
    RETURNING newest.next_offset, newest.bytes_total
)
UPDATE laneway.partition p
SET start_offset = cut.next_offset, start_bytes_total = cut.bytes_total
FROM cut, old
WHERE p.partition_id = $1
RETURNING p.start_offset, old.start_offset AS from_offset, p.start_bytes_total - old.start_bytes_total AS bytes
