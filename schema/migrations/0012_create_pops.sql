-- Pops: lanes that stateless consumers have taken for a while, over HTTP. Such a lane has no session and no broker; until when it is
-- taken, and how far, stands in its own row.

ALTER TABLE laneway.consumer_group ADD COLUMN pulled_at timestamptz;
COMMENT ON COLUMN laneway.consumer_group.pulled_at IS 'When somebody has pulled last, roughly: pullers are one member of the group for a while after it.';

ALTER TABLE laneway.lane
    ADD COLUMN popped_at timestamptz,
    ADD COLUMN popped_until_at timestamptz,
    ADD COLUMN popped_end_offset bigint,
    ADD CONSTRAINT lane_popped CHECK (
        (popped_at IS NULL) = (popped_until_at IS NULL) AND (popped_at IS NULL) = (popped_end_offset IS NULL)
    );
COMMENT ON COLUMN laneway.lane.popped_at IS 'Since when a puller has it, under the epoch of the row; null: none has.';
COMMENT ON COLUMN laneway.lane.popped_until_at IS 'Until when the puller may acknowledge; from then on anybody may free it.';
COMMENT ON COLUMN laneway.lane.popped_end_offset IS 'What the puller was given ends here.';

-- The same columns as before: a lane that is popped says so, and is not stuck.
CREATE OR REPLACE VIEW laneway.lanes AS
SELECT
    t.name AS topic, g.name AS group_name, p.number AS partition, l.session_id AS holder, l.broker_id AS broker, l.epoch,
    CASE
        WHEN l.popped_until_at > clock_timestamp() THEN 'popped'
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

CREATE OR REPLACE VIEW laneway.stuck_lanes AS
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
  AND lanes.state <> 'popped'
  AND (
      lanes.state = 'blocked'
      OR lanes.holder IS NULL
      OR b.broker_id IS NULL OR b.dead_at IS NOT NULL OR b.expires_at < clock_timestamp()
      OR lanes.drain_until_at < clock_timestamp()
  );
