-- steps_lock_lanes: the fence of steps. As lanes_lock, but waits for lanes that are busy, up to lock_timeout.
-- $1 group_ids bigint[], $2 partition_ids bigint[], $3 epochs bigint[], $4 sessions uuid[]
-- The places obtained, counted from 1, go into the transaction-local setting laneway.held, which steps_check reads.
-- Locks lane rows by group and partition, until commit.
SELECT set_config('laneway.held', coalesce(string_agg(held.place::text, ','), ''), true)
FROM (
    SELECT w.place
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::uuid[]) WITH ORDINALITY
        AS w (group_id, partition_id, epoch, session_id, place)
    JOIN laneway.lane l
        ON l.group_id = w.group_id AND l.partition_id = w.partition_id AND l.epoch = w.epoch AND l.session_id = w.session_id
    ORDER BY l.group_id, l.partition_id
    FOR NO KEY UPDATE OF l
) AS held
