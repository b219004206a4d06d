-- lanes_acquire: gives free lanes to the sessions that are to have them, under the next epoch.
-- $1 group_id bigint, $2 partition_ids bigint[], $3 epochs bigint[] (as they were seen), $4 sessions uuid[], $5 broker_id uuid
-- Rows: those obtained; somebody was faster with the others, or a puller has them. Locks them by id.
WITH want AS (
    SELECT * FROM unnest($2::bigint[], $3::bigint[], $4::uuid[]) AS w (partition_id, epoch, session_id)
),
held AS (
    SELECT l.partition_id
    FROM laneway.lane l
    JOIN want ON want.partition_id = l.partition_id AND want.epoch = l.epoch AND want.session_id = l.wanted_session
    WHERE l.group_id = $1 AND l.session_id IS NULL AND l.popped_until_at IS NULL
    ORDER BY l.partition_id
    FOR NO KEY UPDATE OF l
)
UPDATE laneway.lane l
SET session_id = l.wanted_session, broker_id = $5, epoch = l.epoch + 1, drain_until_at = NULL
FROM held
WHERE l.group_id = $1 AND l.partition_id = held.partition_id AND l.session_id IS NULL AND l.popped_until_at IS NULL
RETURNING l.partition_id, l.epoch, l.session_id, l.suspect_until
