-- segments_completed: whether a segment may go because every group has committed past it, and the grace is over.
-- $1 partition_id bigint, $2 segment_id bigint
-- No row: not so (any more). Order: partitions_lock_waiting in a statement before this one, so that nothing is published to the
-- open segment after it was seen. Locks nothing itself.
SELECT s.segment_id
FROM laneway.segment s
JOIN laneway.partition p USING (partition_id)
JOIN laneway.topic t USING (topic_id)
CROSS JOIN LATERAL (
    SELECT head.next_offset, head.published_at
    FROM laneway.head
    WHERE head.partition_id = s.partition_id
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) h
WHERE s.segment_id = $2 AND s.partition_id = $1
  AND s.completed_at <= clock_timestamp() - make_interval(secs => t.retention_completed_ms / 1000.0)
  AND (s.sealed_at IS NOT NULL OR h.published_at <= s.completed_at)
  AND EXISTS (SELECT FROM laneway.consumer_group g WHERE g.topic_id = t.topic_id)
  AND NOT EXISTS (
      SELECT
      FROM laneway.consumer_group g
      LEFT JOIN laneway.lane l ON l.group_id = g.group_id AND l.partition_id = s.partition_id
      LEFT JOIN LATERAL (
          SELECT lc.committed_offset
          FROM laneway.lane_commit lc
          WHERE lc.group_id = g.group_id AND lc.partition_id = s.partition_id
          ORDER BY lc.epoch DESC, lc.number DESC
          LIMIT 1
      ) c ON true
      WHERE g.topic_id = t.topic_id
        AND coalesce(c.committed_offset, l.first_offset, 0) < least(s.end_offset, h.next_offset)
  )
