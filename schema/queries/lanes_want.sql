-- lanes_want: writes down who is to have which lane; holders that are not wanted any more get time to finish.
-- $1 group_id bigint, $2 partition_ids bigint[], $3 sessions uuid[] (null: nobody), $4 drain_ms bigint
-- Locks those lanes by id.
WITH want AS (
    SELECT * FROM unnest($2::bigint[], $3::uuid[]) AS w (partition_id, session_id)
),
held AS (
    SELECT l.partition_id
    FROM laneway.lane l
    WHERE l.group_id = $1 AND l.partition_id = ANY ($2)
    ORDER BY l.partition_id
    FOR NO KEY UPDATE
)
UPDATE laneway.lane l
SET wanted_session = want.session_id,
    drain_until_at = CASE
        WHEN l.session_id IS NOT NULL AND l.session_id IS DISTINCT FROM want.session_id
        THEN clock_timestamp() + $4 * interval '1 millisecond'
    END
FROM held JOIN want USING (partition_id)
WHERE l.group_id = $1 AND l.partition_id = held.partition_id
