-- segments_list: the catalogue of a partition: its start, its length rule, and its readable segments in order.
-- $1 partition_id bigint
-- No row: no such partition. A partition without tables has one row whose segment columns are null. Locks nothing.
SELECT
    p.start_offset, s.segment_id, s.first_offset, s.end_offset, s.bytes, s.last_published_at, s.sealed_at
FROM laneway.partition p
LEFT JOIN laneway.segment s ON s.partition_id = p.partition_id AND s.state = 'attached'
WHERE p.partition_id = $1 AND p.deleted_at IS NULL
ORDER BY s.first_offset
