-- segments_emptied: segments that take messages and hold none that can be read: everything in them was purged.
-- No row: none. Locks nothing; looks at segments that begin below the start of their partition, which only a purge makes.
SELECT s.segment_id, s.partition_id
FROM laneway.segment s
JOIN laneway.partition p USING (partition_id)
CROSS JOIN LATERAL (
    SELECT h.next_offset
    FROM laneway.head h
    WHERE h.partition_id = s.partition_id
    ORDER BY h.published_at DESC, h.next_offset DESC
    LIMIT 1
) newest
WHERE s.state = 'attached' AND s.sealed_at IS NULL AND s.first_offset < p.start_offset AND s.end_offset > p.start_offset
  AND newest.next_offset = p.start_offset
ORDER BY s.partition_id
