-- segments_full: partitions with segments that are full and not sealed yet.
-- No row: none. Locks nothing; looks at the open segments only, with one index descent each.
SELECT DISTINCT s.partition_id
FROM laneway.segment s
CROSS JOIN LATERAL (
    SELECT h.next_offset
    FROM laneway.head h
    WHERE h.partition_id = s.partition_id
    ORDER BY h.published_at DESC, h.next_offset DESC
    LIMIT 1
) newest
WHERE s.state = 'attached' AND s.sealed_at IS NULL AND s.end_offset <= newest.next_offset
