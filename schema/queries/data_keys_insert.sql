-- data_keys_insert: makes a data key: for a broker that seals messages with it from now on, or for this transaction alone.
-- $1 data_key_id uuid, $2 partition_id bigint, $3 place text, $4 broker_id uuid (null: for this transaction),
-- $5 ring_key text, $6 ring_fingerprint bytea, $7 salt bytea
-- One row: its topic, and where the segment ends that is written now, or will be first. No row: the partition is gone. Locks nothing that exists,
-- apart from the key of the partition's row, against its deletion.
INSERT INTO laneway.data_key (
    data_key_id, topic_id, partition_id, place, broker_id, ring_key, ring_fingerprint, salt, segment_end, closed_at, end_offset
)
SELECT
    $1, p.topic_id, p.partition_id, $3, $4, $5, $6, $7,
    coalesce(
        (
            SELECT s.end_offset
            FROM laneway.segment s
            WHERE s.partition_id = p.partition_id AND s.end_offset > coalesce(h.next_offset, 0)
            ORDER BY s.first_offset
            LIMIT 1
        ),
        coalesce(h.next_offset, 0) + t.segment_messages
    ),
    CASE WHEN $4::uuid IS NULL THEN clock_timestamp() END,
    CASE WHEN $3 = 'copy' THEN 0 END
FROM laneway.partition p
JOIN laneway.topic t USING (topic_id)
LEFT JOIN LATERAL (
    SELECT head.next_offset
    FROM laneway.head
    WHERE head.partition_id = p.partition_id
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) h ON true
WHERE p.partition_id = $2 AND p.deleted_at IS NULL
RETURNING topic_id, segment_end
