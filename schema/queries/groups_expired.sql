-- groups_expired: the groups that nobody has used for as long as their topic allows, and that have no parked keys.
-- $1 group_id bigint (null: all of them)
-- No row: none. Locks nothing. Order: groups_idle before this one; for one group, groups_close and lanes_close before it, so
-- that nobody comes in between.
SELECT g.group_id, g.name, t.name AS topic
FROM laneway.consumer_group g
JOIN laneway.topic t USING (topic_id)
WHERE ($1 IS NULL OR g.group_id = $1) AND t.deleted_at IS NULL
  AND g.idle_since_at <= clock_timestamp() - make_interval(secs => t.group_expiry_ms / 1000.0)
  AND coalesce(g.pulled_at <= g.idle_since_at, true)
  AND g.idle_epochs = (SELECT coalesce(sum(l.epoch), 0)::bigint FROM laneway.lane l WHERE l.group_id = g.group_id)
  AND NOT EXISTS (SELECT FROM laneway.parked_key k WHERE k.group_id = g.group_id AND (k.state = 'parked' OR k.messages > 0))
ORDER BY g.group_id
