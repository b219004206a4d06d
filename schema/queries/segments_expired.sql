-- segments_expired: the segments that retention by age, by bytes or of what is completed lets go, oldest first, and why.
-- No row: nothing to do. Locks nothing; reads the catalogue, one newest head per partition, and no message.
-- Why an open segment can be named: a quiet partition would keep its last messages for ever otherwise.
-- Order: segments_complete before this one; what it marks is looked at once more under the lock of the partition.
WITH newest AS (
    SELECT p.partition_id, p.topic_id, p.start_bytes_total, h.next_offset, h.bytes_total, h.published_at
    FROM laneway.topic t
    JOIN laneway.partition p USING (topic_id)
    CROSS JOIN LATERAL (
        SELECT head.next_offset, head.bytes_total, head.published_at
        FROM laneway.head
        WHERE head.partition_id = p.partition_id
        ORDER BY head.published_at DESC, head.next_offset DESC
        LIMIT 1
    ) h
    WHERE t.deleted_at IS NULL
      AND (t.retention_age_ms IS NOT NULL OR t.retention_bytes IS NOT NULL OR t.retention_completed_ms IS NOT NULL)
),
stored AS (
    SELECT topic_id, sum(bytes_total - start_bytes_total) AS bytes FROM newest GROUP BY topic_id
),
candidate AS (
    SELECT
        s.segment_id, s.partition_id, s.first_offset, s.sealed_at, s.completed_at, n.topic_id,
        coalesce(s.last_published_at, n.published_at) AS last_published_at,
        coalesce(sum(s.bytes) OVER (
            PARTITION BY n.topic_id ORDER BY s.sealed_at IS NULL, s.last_published_at, s.partition_id, s.first_offset
        ), 0) AS bytes_up_to_it
    FROM laneway.segment s
    JOIN newest n USING (partition_id)
    WHERE s.state = 'attached' AND s.first_offset < n.next_offset
),
judged AS (
    SELECT
        c.segment_id, c.partition_id, c.first_offset, c.sealed_at IS NOT NULL AS sealed,
        CASE
            WHEN c.last_published_at < clock_timestamp() - make_interval(secs => t.retention_age_ms / 1000.0) THEN 'age'
            WHEN c.sealed_at IS NOT NULL AND stored.bytes - c.bytes_up_to_it >= t.retention_bytes THEN 'bytes'
            WHEN c.completed_at <= clock_timestamp() - make_interval(secs => t.retention_completed_ms / 1000.0)
            THEN 'completed'
        END AS reason
    FROM candidate c
    JOIN laneway.topic t USING (topic_id)
    JOIN stored USING (topic_id)
)
SELECT segment_id, partition_id, sealed, reason
FROM judged
WHERE reason IS NOT NULL
ORDER BY partition_id, first_offset
