-- parked_messages_drop: drops the copy that a parked key failed at, and says so in its trace: the one with the most attempts, which a
-- seek or a takeover may have put others before, else the first. The lane's row is locked.
-- $1 parked_id bigint
WITH failed AS (
    SELECT k.group_id, k.partition_id, f."offset"
    FROM laneway.parked_key k
    CROSS JOIN LATERAL (
        (
            SELECT copy."offset", copy.attempts
            FROM laneway.parked_message copy
            WHERE copy.group_id = k.group_id AND copy.partition_id = k.partition_id AND copy.parked_offset = k.parked_offset
              AND copy.attempts > 0
            ORDER BY copy.attempts DESC, copy."offset"
            LIMIT 1
        )
        UNION ALL
        (
            SELECT copy."offset", copy.attempts
            FROM laneway.parked_message copy
            WHERE copy.group_id = k.group_id AND copy.partition_id = k.partition_id AND copy.parked_offset = k.parked_offset
            ORDER BY copy."offset"
            LIMIT 1
        )
        ORDER BY attempts DESC
        LIMIT 1
    ) f
    WHERE k.parked_id = $1 AND k.state = 'parked'
),
gone AS (
    DELETE FROM laneway.parked_message m
    USING failed
    WHERE m.group_id = failed.group_id AND m.partition_id = failed.partition_id AND m."offset" = failed."offset"
    RETURNING m.group_id, m.partition_id, m."offset", m.reason
),
counted AS (
    UPDATE laneway.parked_key SET messages = messages - (SELECT count(*) FROM gone) WHERE parked_id = $1
)
INSERT INTO laneway.failure (group_id, partition_id, "offset", attempt, outcome, reason, failed_at)
SELECT group_id, partition_id, "offset", 0, 'drop', reason, now()
FROM gone
