-- Who does how much, and what topics store. For people in psql; nothing in the broker reads these.

CREATE VIEW laneway.broker_utilisation AS
SELECT
    b.broker_id AS broker, b.started_at, b.expires_at > clock_timestamp() AS is_alive,
    (SELECT count(*) FROM laneway.session s WHERE s.broker_id = b.broker_id) AS sessions,
    coalesce(held.groups, 0) AS groups, coalesce(held.lanes, 0) AS lanes,
    round(coalesce(held.lanes, 0) / nullif(sum(held.lanes) OVER (), 0), 3) AS lane_share
FROM laneway.broker b
LEFT JOIN (
    SELECT l.broker_id, count(*) AS lanes, count(DISTINCT l.group_id) AS groups
    FROM laneway.lane l
    WHERE l.session_id IS NOT NULL
    GROUP BY l.broker_id
) held USING (broker_id)
WHERE b.dead_at IS NULL;
COMMENT ON VIEW laneway.broker_utilisation IS 'What each broker that is not buried has to do: sessions, groups, lanes, and its share of all lanes that are held.';

CREATE VIEW laneway.session_utilisation AS
SELECT
    s.session_id AS session, s.broker_id AS broker, s.opened_at, t.name AS topic, g.name AS group_name, m.joined_at,
    count(l.partition_id) AS lanes,
    round(count(l.partition_id) / nullif(sum(count(l.partition_id)) OVER (PARTITION BY m.group_id), 0), 3) AS lane_share
FROM laneway.session s
JOIN laneway.member m USING (session_id)
JOIN laneway.consumer_group g USING (group_id)
JOIN laneway.topic t USING (topic_id)
LEFT JOIN laneway.lane l ON l.group_id = m.group_id AND l.session_id = m.session_id
WHERE t.deleted_at IS NULL
GROUP BY s.session_id, s.broker_id, s.opened_at, t.name, g.name, m.group_id, m.joined_at;
COMMENT ON VIEW laneway.session_utilisation IS 'What each member of a group holds of it: lanes, and its share of those that members hold.';

CREATE VIEW laneway.topic_utilisation AS
SELECT
    t.name AS topic, count(*) AS partitions, sum(h.messages)::bigint AS messages, sum(h.bytes)::bigint AS bytes,
    sum(s.segments)::bigint AS segments, sum(h.messages_last_hour)::bigint AS messages_last_hour,
    sum(h.bytes_last_hour)::bigint AS bytes_last_hour, max(h.last_published_at) AS last_published_at,
    round(max(h.messages) / nullif(sum(h.messages), 0), 3) AS largest_partition_share,
    round(sum(h.bytes) / t.retention_bytes, 3) AS retention_used
FROM laneway.topic t
JOIN laneway.partition p USING (topic_id)
LEFT JOIN LATERAL (
    SELECT head.next_offset, head.bytes_total, head.published_at
    FROM laneway.head
    WHERE head.partition_id = p.partition_id
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) newest ON true
LEFT JOIN LATERAL (
    SELECT head.next_offset, head.bytes_total
    FROM laneway.head
    WHERE head.partition_id = p.partition_id AND head.published_at < clock_timestamp() - interval '1 hour'
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) hour_ago ON true
CROSS JOIN LATERAL (
    SELECT
        coalesce(newest.next_offset, 0) - p.start_offset AS messages,
        coalesce(newest.bytes_total, 0) - p.start_bytes_total AS bytes,
        greatest(coalesce(newest.next_offset, 0) - coalesce(hour_ago.next_offset, p.start_offset), 0) AS messages_last_hour,
        greatest(coalesce(newest.bytes_total, 0) - coalesce(hour_ago.bytes_total, p.start_bytes_total), 0) AS bytes_last_hour,
        newest.published_at AS last_published_at
) h
CROSS JOIN LATERAL (
    SELECT count(*) AS segments FROM laneway.segment WHERE segment.partition_id = p.partition_id
) s
WHERE t.deleted_at IS NULL AND p.deleted_at IS NULL
GROUP BY t.topic_id, t.name, t.retention_bytes;
COMMENT ON VIEW laneway.topic_utilisation IS 'What each topic stores and by how much it grew within the hour, from heads and the catalogue: no message is read.';
