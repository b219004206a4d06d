-- segments_seal: records what full segments hold, so that retention and time look-ups need no scan.
-- $1 partition_id bigint
-- A row per segment sealed now; no row: nothing was full. Locks the segment rows.
-- Bytes are those of the first head at or past each end: exact unless a flush crossed it or the head was thinned. Then
-- they count too many, so that retention by bytes never drops more than it should; and the error is never carried on,
-- because retention takes end_bytes_total as it is.
WITH full_one AS (
    SELECT s.segment_id, s.first_offset, reached.bytes_total, reached.published_at, earlier.published_at AS earlier_at
    FROM laneway.segment s
    CROSS JOIN LATERAL (
        SELECT h.bytes_total, h.published_at
        FROM laneway.head h
        WHERE h.partition_id = s.partition_id
          AND h.published_at >= s.created_at
          AND h.next_offset >= s.end_offset
        ORDER BY h.published_at, h.next_offset
        LIMIT 1
    ) reached
    LEFT JOIN LATERAL (
        SELECT h.published_at
        FROM laneway.head h
        WHERE h.partition_id = s.partition_id AND h.next_offset <= s.first_offset
        ORDER BY h.published_at DESC, h.next_offset DESC
        LIMIT 1
    ) earlier ON true
    WHERE s.partition_id = $1 AND s.state = 'attached' AND s.sealed_at IS NULL
),
sealed AS (
    SELECT coalesce(max(s.end_bytes_total), p.start_bytes_total) AS bytes_total
    FROM laneway.partition p
    LEFT JOIN laneway.segment s
        ON s.partition_id = p.partition_id AND s.state = 'attached' AND s.sealed_at IS NOT NULL
    WHERE p.partition_id = $1
    GROUP BY p.partition_id
),
sized AS (
    SELECT full_one.*, lag(full_one.bytes_total, 1, sealed.bytes_total) OVER (ORDER BY first_offset) AS bytes_before
    FROM full_one, sealed
)
UPDATE laneway.segment s
SET sealed_at = clock_timestamp(),
    bytes = sized.bytes_total - sized.bytes_before,
    end_bytes_total = sized.bytes_total,
    first_published_at = coalesce(sized.earlier_at, s.created_at),
    last_published_at = sized.published_at
FROM sized
WHERE s.segment_id = sized.segment_id AND s.sealed_at IS NULL
RETURNING s.segment_id
