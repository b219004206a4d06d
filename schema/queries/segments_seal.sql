-- segments_seal: records what full segments hold, so that retention and time look-ups need no scan.
-- $1 partition_id bigint
-- A row per segment sealed now; no row: nothing was full. Locks the segment rows.
-- Bytes are those of the last head up to each end: exact unless a flush crossed it or the head was thinned, and never
-- carried on, because retention takes end_bytes_total as it is.
UPDATE laneway.segment s
SET sealed_at = clock_timestamp(),
    bytes = upper_end.bytes_total - coalesce(lower_end.bytes_total, 0),
    end_bytes_total = upper_end.bytes_total,
    first_published_at = coalesce(lower_end.published_at, s.created_at),
    last_published_at = following.published_at
FROM laneway.segment full_one
CROSS JOIN LATERAL (
    SELECT h.published_at
    FROM laneway.head h
    WHERE h.partition_id = full_one.partition_id
      AND h.published_at >= full_one.created_at
      AND h.next_offset >= full_one.end_offset
    ORDER BY h.published_at, h.next_offset
    LIMIT 1
) following
CROSS JOIN LATERAL (
    SELECT h.bytes_total
    FROM laneway.head h
    WHERE h.partition_id = full_one.partition_id AND h.next_offset <= full_one.end_offset
    ORDER BY h.published_at DESC, h.next_offset DESC
    LIMIT 1
) upper_end
LEFT JOIN LATERAL (
    SELECT h.bytes_total, h.published_at
    FROM laneway.head h
    WHERE h.partition_id = full_one.partition_id AND h.next_offset <= full_one.first_offset
    ORDER BY h.published_at DESC, h.next_offset DESC
    LIMIT 1
) lower_end ON true
WHERE s.segment_id = full_one.segment_id
  AND full_one.partition_id = $1
  AND full_one.state = 'attached'
  AND full_one.sealed_at IS NULL
RETURNING s.segment_id
