-- segment_find_time: the first offset published at or after a moment, from an offset that a head has given.
-- $1 from bigint, $2 at timestamptz
-- No row: nothing that young here. Locks nothing; walks at most the spacing of the heads.
SELECT s."offset"
FROM laneway.message_s{segment_id} s
WHERE s."offset" >= $1 AND s.published_at >= $2
ORDER BY s."offset"
LIMIT 1
