-- segments_leaving: segments on their way out, for whichever broker carries on.
-- No row: none. Locks nothing.
SELECT segment_id, partition_id, state = 'retired' AS attached
FROM laneway.segment
WHERE state <> 'attached'
ORDER BY segment_id
