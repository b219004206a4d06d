-- segments_unfrozen: sealed segments that still have to be frozen, once.
-- $1 limit bigint
-- No row: all are. Locks nothing.
SELECT segment_id FROM laneway.segment
WHERE state = 'attached' AND sealed_at IS NOT NULL AND frozen_at IS NULL
ORDER BY sealed_at
LIMIT $1
