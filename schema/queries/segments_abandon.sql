-- segments_abandon: sends every segment of a deleted partition on its way out.
-- $1 partition_id bigint
-- Count of rows = segments retired now. Order: segments_try_lock in a statement before this one, so that a segment that
-- was being made is seen. Locks the segment rows.
UPDATE laneway.segment s
SET state = 'retired'
FROM laneway.partition p
WHERE s.partition_id = $1 AND s.state = 'attached' AND p.partition_id = s.partition_id AND p.deleted_at IS NOT NULL
