-- segments_survey: what a broker must know before it makes segments for a partition.
-- $1 partition_id bigint
-- No row: no such partition. Locks nothing.
SELECT
    coalesce(h.next_offset, 0) AS next_offset,
    coalesce(h.bytes_total, 0) AS bytes_total,
    t.segment_messages,
    to_regclass(format('laneway.message_p%s', p.partition_id)) IS NOT NULL AS has_table,
    coalesce(s.first_offsets, '{}') AS first_offsets,
    coalesce(s.end_offsets, '{}') AS end_offsets
FROM laneway.partition p
JOIN laneway.topic t USING (topic_id)
LEFT JOIN LATERAL (
    SELECT head.next_offset, head.bytes_total
    FROM laneway.head
    WHERE head.partition_id = p.partition_id
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) h ON true
LEFT JOIN LATERAL (
    SELECT array_agg(first_offset ORDER BY first_offset) AS first_offsets,
           array_agg(end_offset ORDER BY first_offset) AS end_offsets
    FROM laneway.segment
    WHERE segment.partition_id = p.partition_id AND segment.state = 'attached'
) s ON true
WHERE p.partition_id = $1 AND p.deleted_at IS NULL
