-- parked_messages_drop: drops the copy that a parked key failed at, and says so in its trace: the one with the most attempts, which a
-- seek or a takeover may have put others before, else the first. The lane's row is locked.
-- $1 parked_id bigint
WITH gone AS (
    DELETE FROM laneway.parked_message m
    USING laneway.parked_key k
    WHERE k.parked_id = $1 AND k.state = 'parked' AND m.group_id = k.group_id AND m.partition_id = k.partition_id
      AND m."offset" = (
          SELECT copy."offset"
          FROM laneway.parked_message copy
          WHERE copy.group_id = k.group_id AND copy.partition_id = k.partition_id AND copy.parked_offset = k.parked_offset
          ORDER BY copy.attempts DESC, copy."offset"
          LIMIT 1
      )
    RETURNING m.group_id, m.partition_id, m."offset", m.reason
),
counted AS (
    UPDATE laneway.parked_key SET messages = messages - (SELECT count(*) FROM gone) WHERE parked_id = $1
)
INSERT INTO laneway.failure (group_id, partition_id, "offset", attempt, outcome, reason, failed_at)
SELECT group_id, partition_id, "offset", 0, 'drop', reason, now()
FROM gone
