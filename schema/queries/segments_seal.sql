-- segments_seal: records what full segments hold, so that retention and time look-ups need no scan.
-- $1 partition_id bigint
-- A row per segment sealed now; no row: nothing was full. Locks the segment rows.
-- Heads and segments meet at the same offsets unless a flush crossed the boundary: bytes are exact to one flush.
UPDATE laneway.segment s
SET sealed_at = clock_timestamp(),
    bytes = ending.bytes_total - coalesce(beginning.bytes_total, 0),
    first_published_at = coalesce(beginning.published_at, s.created_at),
    last_published_at = ending.published_at
FROM laneway.segment full_one
CROSS JOIN LATERAL (
    SELECT h.bytes_total, h.published_at, newest.next_offset
    FROM laneway.head h
    CROSS JOIN LATERAL (
        SELECT n.next_offset
        FROM laneway.head n
        WHERE n.partition_id = full_one.partition_id
        ORDER BY n.published_at DESC, n.next_offset DESC
        LIMIT 1
    ) newest
    WHERE h.partition_id = full_one.partition_id AND h.next_offset >= full_one.end_offset
    ORDER BY h.published_at, h.next_offset
    LIMIT 1
) ending
LEFT JOIN LATERAL (
    SELECT h.bytes_total, h.published_at
    FROM laneway.head h
    WHERE h.partition_id = full_one.partition_id AND h.next_offset <= full_one.first_offset
    ORDER BY h.published_at DESC, h.next_offset DESC
    LIMIT 1
) beginning ON true
WHERE s.segment_id = full_one.segment_id
  AND full_one.partition_id = $1
  AND full_one.state = 'attached'
  AND full_one.sealed_at IS NULL
  AND full_one.end_offset <= ending.next_offset
RETURNING s.segment_id
