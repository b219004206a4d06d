-- witness_unmanned: groups of a topic that have lanes and no member at a broker that lives, for the verifier.
-- $1 topic text
-- No row: every group has somebody. Locks nothing.
SELECT g.name
FROM laneway.consumer_group g
JOIN laneway.topic t USING (topic_id)
WHERE t.name = $1 AND t.deleted_at IS NULL
  AND NOT EXISTS (
      SELECT FROM laneway.member m
      JOIN laneway.session s USING (session_id)
      JOIN laneway.broker b USING (broker_id)
      WHERE m.group_id = g.group_id AND b.dead_at IS NULL AND b.expires_at > clock_timestamp()
  )
