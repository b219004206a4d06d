-- partitions_purge: moves the starts of partitions forward; nobody reads what lies below from then on.
-- $1 partition_ids bigint[], $2 offsets bigint[] (null: everything that there is)
-- Rows: one per partition that is there, with its start before and now, and the bytes and whole segments between the two. A start
-- never moves back, and never beyond the next offset. What went stands in the history. Segments that lie wholly below are retired; the one that takes messages is cut later, by retention (segments_emptied).
-- The bytes below a start inside a flush are told by the share of its messages: heads know no more.
-- Order: partitions_lock_waiting in a statement before this one, so that the heads are not from before the wait. Locks segment
-- rows. Reads heads and the catalogue, no message.
-- Hints at commit, to all: whatever they remember of a partition may lie below its start. The commit waits for the disk.
WITH place AS MATERIALIZED (
    SELECT
        p.partition_id, p.topic_id, p.number, p.start_offset, p.start_bytes_total,
        greatest(p.start_offset, least(w.target, coalesce(newest.next_offset, 0))) AS to_offset
    FROM unnest($1::bigint[], $2::bigint[]) AS w (partition_id, target)
    JOIN laneway.partition p USING (partition_id)
    LEFT JOIN LATERAL (
        SELECT h.next_offset
        FROM laneway.head h
        WHERE h.partition_id = w.partition_id
        ORDER BY h.published_at DESC, h.next_offset DESC
        LIMIT 1
    ) newest ON true
    WHERE p.deleted_at IS NULL
),
sized AS MATERIALIZED (
    SELECT
        place.partition_id, place.to_offset,
        coalesce(
            below.bytes_total + (above.bytes_total - below.bytes_total)
                * (place.to_offset - below.next_offset) / (above.next_offset - below.next_offset),
            below.bytes_total
        )::bigint AS to_bytes
    FROM place
    CROSS JOIN LATERAL (
        SELECT max(known.next_offset) AS next_offset, max(known.bytes_total) AS bytes_total
        FROM (
            SELECT place.start_offset AS next_offset, place.start_bytes_total::numeric AS bytes_total
            UNION ALL
            (
                SELECT h.next_offset, h.bytes_total
                FROM laneway.head h
                WHERE h.partition_id = place.partition_id AND h.next_offset <= place.to_offset
                ORDER BY h.published_at DESC, h.next_offset DESC
                LIMIT 1
            )
        ) AS known
    ) below
    LEFT JOIN LATERAL (
        SELECT h.next_offset, h.bytes_total
        FROM laneway.head h
        WHERE h.partition_id = place.partition_id AND h.next_offset > place.to_offset
        ORDER BY h.published_at, h.next_offset
        LIMIT 1
    ) above ON true
    WHERE place.to_offset > place.start_offset
),
retired AS (
    UPDATE laneway.segment s
    SET state = 'retired', sealed_at = coalesce(s.sealed_at, clock_timestamp())
    FROM sized
    WHERE s.partition_id = sized.partition_id AND s.state = 'attached' AND s.end_offset <= sized.to_offset
    RETURNING s.partition_id
),
shortened AS (
    UPDATE laneway.segment s
    SET bytes = greatest(s.end_bytes_total - sized.to_bytes, 0)
    FROM sized
    WHERE s.partition_id = sized.partition_id AND s.state = 'attached' AND s.sealed_at IS NOT NULL
      AND s.first_offset < sized.to_offset AND s.end_offset > sized.to_offset
),
moved AS (
    UPDATE laneway.partition p
    SET start_offset = sized.to_offset, start_bytes_total = sized.to_bytes
    FROM sized
    WHERE p.partition_id = sized.partition_id
),
recorded AS (
    INSERT INTO laneway.retention_event (topic_id, reason, partition, from_offset, to_offset, bytes)
    SELECT place.topic_id, 'purged', place.number, place.start_offset, sized.to_offset, sized.to_bytes - place.start_bytes_total
    FROM sized
    JOIN place USING (partition_id)
)
SELECT
    place.partition_id, place.number, place.start_offset, place.to_offset,
    coalesce(sized.to_bytes - place.start_bytes_total, 0) AS bytes,
    (SELECT count(*) FROM retired WHERE retired.partition_id = place.partition_id) AS segments,
    pg_notify('laneway', 'everything')
FROM place
LEFT JOIN sized USING (partition_id)
ORDER BY place.number
