-- segments_retire: moves the start of a partition past its oldest segment, which nobody reads from then on.
-- $1 partition_id bigint, $2 segment_id bigint
-- No row: it is not the oldest sealed segment (any more), nothing happened. One row: the new start, and what went.
-- Order: partitions_lock_waiting in a statement before this one; a statement that waited for the lock would still see
-- the catalogue as it was before the wait. Locks the segment row.
WITH old AS (
    SELECT start_offset, start_bytes_total FROM laneway.partition WHERE partition_id = $1
),
oldest AS (
    SELECT s.segment_id, s.end_offset, s.end_bytes_total
    FROM laneway.segment s
    WHERE s.partition_id = $1 AND s.state = 'attached'
    ORDER BY s.first_offset
    LIMIT 1
),
retired AS (
    UPDATE laneway.segment s
    SET state = 'retired'
    FROM oldest
    WHERE s.segment_id = oldest.segment_id AND s.segment_id = $2 AND s.sealed_at IS NOT NULL
    RETURNING oldest.end_offset, oldest.end_bytes_total
)
UPDATE laneway.partition p
SET start_offset = retired.end_offset, start_bytes_total = retired.end_bytes_total
FROM retired, old
WHERE p.partition_id = $1
RETURNING p.start_offset, old.start_offset AS from_offset, p.start_bytes_total - old.start_bytes_total AS bytes
