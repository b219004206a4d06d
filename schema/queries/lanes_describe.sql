-- lanes_describe: lanes by topic, group and partition, after a given one: who holds them, and how far they are behind.
-- $1 topic_id bigint (null: of every topic), $2 group_name text (null: of every group), $3 after_topic text ('' for the
-- first page), $4 after_group text, $5 after_number integer, $6 limit bigint
-- No row: the end of the list. Locks nothing. The lag in time is that of the first head beyond the committed offset, so of
-- the flush that the first waiting message came with, or of one at most a spacing of heads later; found by walking back from
-- the newest head, over as many heads as lie in the lag. The nil UUID is the pullers: a lane of theirs that nobody has can be blocked.
WITH page AS (
    SELECT
        t.name AS topic, g.name AS group_name, g.max_attempts, g.on_failure, p.number, p.start_offset, l.group_id, l.partition_id,
        l.first_offset, l.epoch, l.session_id, l.broker_id, l.wanted_session, l.suspect_until, l.popped_until_at
    FROM laneway.consumer_group g
    JOIN laneway.topic t USING (topic_id)
    JOIN laneway.lane l USING (group_id)
    JOIN laneway.partition p ON p.partition_id = l.partition_id
    WHERE t.deleted_at IS NULL AND ($1 IS NULL OR t.topic_id = $1) AND ($2 IS NULL OR g.name = $2)
      AND (t.name, g.name, p.number) > ($3, $4, $5)
    ORDER BY t.name, g.name, p.number
    LIMIT $6
),
placed AS (
    SELECT
        page.*,
        greatest(coalesce(c.committed_offset, page.first_offset), page.start_offset) AS committed_offset,
        (SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint FROM unnest(c.acked) AS r) AS acked,
        coalesce(h.next_offset, 0) AS next_offset
    FROM page
    LEFT JOIN LATERAL (
        SELECT lc.committed_offset, lc.acked
        FROM laneway.lane_commit lc
        WHERE lc.group_id = page.group_id AND lc.partition_id = page.partition_id
        ORDER BY lc.epoch DESC, lc.number DESC
        LIMIT 1
    ) c ON true
    LEFT JOIN LATERAL (
        SELECT head.next_offset
        FROM laneway.head
        WHERE head.partition_id = page.partition_id
        ORDER BY head.published_at DESC, head.next_offset DESC
        LIMIT 1
    ) h ON true
)
SELECT
    l.topic, l.group_name, l.number, l.epoch, l.session_id, l.broker_id, l.wanted_session, l.committed_offset, l.next_offset,
    greatest(l.next_offset - l.committed_offset - l.acked, 0) AS lag,
    CASE
        WHEN l.next_offset > l.committed_offset
        THEN greatest(extract(epoch FROM clock_timestamp() - waiting.published_at), 0)::double precision
        ELSE 0
    END AS lag_seconds,
    CASE
        WHEN l.popped_until_at > clock_timestamp() THEN 'popped'
        WHEN l.session_id IS NULL AND l.wanted_session IS NULL THEN 'free'
        WHEN l.session_id IS NULL AND l.wanted_session <> '00000000-0000-0000-0000-000000000000' THEN 'waiting'
        WHEN l.session_id IS NOT NULL AND l.session_id IS DISTINCT FROM l.wanted_session THEN 'draining'
        WHEN l.on_failure = 'block' AND EXISTS (
            SELECT FROM laneway.attempt a
            WHERE a.group_id = l.group_id AND a.partition_id = l.partition_id AND a."offset" >= l.committed_offset
              AND a.attempts >= l.max_attempts
        ) THEN 'blocked'
        WHEN l.session_id IS NULL THEN 'waiting'
        WHEN l.committed_offset < l.suspect_until THEN 'suspect'
        ELSE 'held'
    END AS state
FROM placed l
LEFT JOIN LATERAL (
    SELECT head.published_at, head.next_offset
    FROM laneway.head
    WHERE head.partition_id = l.partition_id AND head.next_offset <= l.committed_offset
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) done ON l.next_offset > l.committed_offset
LEFT JOIN LATERAL (
    SELECT head.published_at
    FROM laneway.head
    WHERE head.partition_id = l.partition_id
      AND (head.published_at, head.next_offset) > (coalesce(done.published_at, '-infinity'), coalesce(done.next_offset, 0))
    ORDER BY head.published_at, head.next_offset
    LIMIT 1
) waiting ON l.next_offset > l.committed_offset
ORDER BY l.topic, l.group_name, l.number
