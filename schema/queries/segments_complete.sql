-- segments_complete: marks the segments that every group has committed past, and takes the mark away where that is no longer so:
-- a group has come or has moved back, or the open segment has grown.
-- Count of rows = marks changed. Locks the segment rows that it changes. Reads heads and commits, and no message.
WITH newest AS (
    SELECT p.partition_id, p.topic_id, h.next_offset, h.published_at
    FROM laneway.topic t
    JOIN laneway.partition p USING (topic_id)
    CROSS JOIN LATERAL (
        SELECT head.next_offset, head.published_at
        FROM laneway.head
        WHERE head.partition_id = p.partition_id
        ORDER BY head.published_at DESC, head.next_offset DESC
        LIMIT 1
    ) h
    WHERE t.deleted_at IS NULL AND t.retention_completed_ms IS NOT NULL
),
done AS (
    SELECT n.partition_id, min(coalesce(c.committed_offset, l.first_offset, 0)) AS committed_offset
    FROM newest n
    JOIN laneway.consumer_group g USING (topic_id)
    LEFT JOIN laneway.lane l ON l.group_id = g.group_id AND l.partition_id = n.partition_id
    LEFT JOIN LATERAL (
        SELECT lc.committed_offset
        FROM laneway.lane_commit lc
        WHERE lc.group_id = g.group_id AND lc.partition_id = n.partition_id
        ORDER BY lc.epoch DESC, lc.number DESC
        LIMIT 1
    ) c ON true
    GROUP BY n.partition_id
),
seen AS (
    SELECT
        s.segment_id, n.published_at,
        coalesce(done.committed_offset >= least(s.end_offset, n.next_offset), false) AS is_completed
    FROM laneway.segment s
    JOIN newest n USING (partition_id)
    LEFT JOIN done USING (partition_id)
    WHERE s.state = 'attached' AND s.first_offset < n.next_offset
)
UPDATE laneway.segment s
SET completed_at = CASE WHEN seen.is_completed THEN clock_timestamp() END
FROM seen
WHERE s.segment_id = seen.segment_id
  AND CASE
      WHEN seen.is_completed
      THEN s.completed_at IS NULL OR (s.sealed_at IS NULL AND s.completed_at < seen.published_at)
      ELSE s.completed_at IS NOT NULL
  END
