-- groups_idle: notes since when groups that may expire have no members, and forgets it where they have some. Pullers are a member
-- for a while after they have asked, and for as long as they have a lane. The epochs of the lanes tell whether somebody came and
-- went meanwhile: they grow with every grant, every pop and every seek; pulled_at tells whether somebody only asked.
-- $1 pullers_ms bigint (how long pullers are a member)
-- Count of rows = groups whose note has changed. Locks their rows.
WITH seen AS (
    SELECT
        g.group_id,
        (SELECT coalesce(sum(l.epoch), 0)::bigint FROM laneway.lane l WHERE l.group_id = g.group_id) AS epochs,
        EXISTS (
            SELECT
            FROM laneway.member m
            JOIN laneway.session s USING (session_id)
            JOIN laneway.broker b USING (broker_id)
            WHERE m.group_id = g.group_id AND b.dead_at IS NULL
        )
        OR coalesce(g.pulled_at > clock_timestamp() - $1 * interval '1 millisecond', false)
        OR EXISTS (
            SELECT FROM laneway.lane l WHERE l.group_id = g.group_id AND l.popped_until_at > clock_timestamp()
        ) AS has_members
    FROM laneway.topic t
    JOIN laneway.consumer_group g USING (topic_id)
    WHERE t.deleted_at IS NULL AND t.group_expiry_ms IS NOT NULL
)
UPDATE laneway.consumer_group g
SET idle_since_at = CASE WHEN NOT seen.has_members THEN clock_timestamp() END,
    idle_epochs = CASE WHEN NOT seen.has_members THEN seen.epochs END
FROM seen
WHERE g.group_id = seen.group_id
  AND CASE
      WHEN seen.has_members THEN g.idle_since_at IS NOT NULL
      ELSE g.idle_since_at IS NULL OR g.idle_epochs IS DISTINCT FROM seen.epochs OR g.pulled_at > g.idle_since_at
  END
