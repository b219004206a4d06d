-- What operators who live in psql look at. Nothing in the broker reads these: docs/OPERATIONS.md explains them.

CREATE VIEW laneway.lag AS
SELECT
    t.name AS topic, g.name AS group_name, p.number AS partition, placed.committed_offset, placed.next_offset,
    greatest(placed.next_offset - placed.committed_offset - placed.acked, 0) AS lag_messages,
    CASE
        WHEN placed.next_offset > placed.committed_offset
        THEN greatest(extract(epoch FROM clock_timestamp() - waiting.published_at), 0)
        ELSE 0
    END AS lag_seconds
FROM laneway.lane l
JOIN laneway.consumer_group g USING (group_id)
JOIN laneway.topic t USING (topic_id)
JOIN laneway.partition p ON p.partition_id = l.partition_id
LEFT JOIN LATERAL (
    SELECT lc.committed_offset, lc.acked
    FROM laneway.lane_commit lc
    WHERE lc.group_id = l.group_id AND lc.partition_id = l.partition_id
    ORDER BY lc.epoch DESC, lc.number DESC
    LIMIT 1
) c ON true
LEFT JOIN LATERAL (
    SELECT head.next_offset
    FROM laneway.head
    WHERE head.partition_id = l.partition_id
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) h ON true
CROSS JOIN LATERAL (
    SELECT
        greatest(coalesce(c.committed_offset, l.first_offset), p.start_offset) AS committed_offset,
        coalesce(h.next_offset, 0) AS next_offset,
        (SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint FROM unnest(c.acked) AS r) AS acked
) placed
LEFT JOIN LATERAL (
    SELECT head.published_at, head.next_offset
    FROM laneway.head
    WHERE head.partition_id = l.partition_id AND head.next_offset <= placed.committed_offset
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) done ON placed.next_offset > placed.committed_offset
LEFT JOIN LATERAL (
    SELECT head.published_at
    FROM laneway.head
    WHERE head.partition_id = l.partition_id
      AND (head.published_at, head.next_offset) > (coalesce(done.published_at, '-infinity'), coalesce(done.next_offset, 0))
    ORDER BY head.published_at, head.next_offset
    LIMIT 1
) waiting ON placed.next_offset > placed.committed_offset
WHERE t.deleted_at IS NULL;
COMMENT ON VIEW laneway.lag IS 'How far each group is behind in each partition: messages that are not done, and how long the first of them has been waiting.';

CREATE VIEW laneway.lanes AS
SELECT
    t.name AS topic, g.name AS group_name, p.number AS partition, l.session_id AS holder, l.broker_id AS broker, l.epoch,
    CASE
        WHEN l.session_id IS NULL AND l.wanted_session IS NULL THEN 'free'
        WHEN l.session_id IS NULL THEN 'waiting'
        WHEN l.session_id IS DISTINCT FROM l.wanted_session THEN 'draining'
        WHEN g.on_failure = 'block' AND EXISTS (
            SELECT FROM laneway.attempt a
            WHERE a.group_id = l.group_id AND a.partition_id = l.partition_id AND a."offset" >= placed.committed_offset
              AND a.attempts >= g.max_attempts
        ) THEN 'blocked'
        WHEN placed.committed_offset < l.suspect_until THEN 'suspect'
        ELSE 'held'
    END AS state,
    l.wanted_session AS wanted, l.drain_until_at
FROM laneway.lane l
JOIN laneway.consumer_group g USING (group_id)
JOIN laneway.topic t USING (topic_id)
JOIN laneway.partition p ON p.partition_id = l.partition_id
LEFT JOIN LATERAL (
    SELECT lc.committed_offset
    FROM laneway.lane_commit lc
    WHERE lc.group_id = l.group_id AND lc.partition_id = l.partition_id
    ORDER BY lc.epoch DESC, lc.number DESC
    LIMIT 1
) c ON true
CROSS JOIN LATERAL (
    SELECT greatest(coalesce(c.committed_offset, l.first_offset), p.start_offset) AS committed_offset
) placed
WHERE t.deleted_at IS NULL;
COMMENT ON VIEW laneway.lanes IS 'Who holds which partition for which group, under which epoch, and what the lane is doing.';

CREATE VIEW laneway.stuck_lanes AS
SELECT
    topic, group_name, partition, lanes.state, lanes.epoch, lanes.holder, lanes.broker, lag.lag_messages, lag.lag_seconds,
    CASE
        WHEN lanes.state = 'blocked' THEN 'a message has failed too often, and the policy is to stop at it'
        WHEN lanes.holder IS NULL THEN 'nobody holds it'
        WHEN b.broker_id IS NULL OR b.dead_at IS NOT NULL OR b.expires_at < clock_timestamp() THEN 'its broker is silent'
        ELSE 'its holder had time to finish and has not let go'
    END AS reason
FROM laneway.lanes
JOIN laneway.lag USING (topic, group_name, partition)
LEFT JOIN laneway.broker b ON b.broker_id = lanes.broker
WHERE lag.lag_messages > 0
  AND (
      lanes.state = 'blocked'
      OR lanes.holder IS NULL
      OR b.broker_id IS NULL OR b.dead_at IS NOT NULL OR b.expires_at < clock_timestamp()
      OR lanes.drain_until_at < clock_timestamp()
  );
COMMENT ON VIEW laneway.stuck_lanes IS 'Lanes with messages that nobody is working on, and why.';

CREATE VIEW laneway.dead_letters_by_group AS
SELECT
    t.name AS topic, d.group_name, count(*) AS dead_letters, min(d.dead_at) AS oldest_at, max(d.dead_at) AS newest_at,
    sum(octet_length(d.payload))::bigint AS payload_bytes
FROM laneway.dead_letter d
JOIN laneway.topic t USING (topic_id)
WHERE t.deleted_at IS NULL
GROUP BY t.name, d.group_name;
COMMENT ON VIEW laneway.dead_letters_by_group IS 'How much each group has given up, and since when.';
