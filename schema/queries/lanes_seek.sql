-- lanes_seek: moves lanes to other offsets, under the next epoch, and takes them from their holders.
-- $1 group_id bigint, $2 partition_ids bigint[], $3 offsets bigint[] (null: after the newest message)
-- Rows: the lanes moved, with where they go on. An offset below what retention has kept becomes the start, one beyond the
-- end becomes the end. Who is wanted stays, and acquires the lane again; what has failed there is forgotten.
-- Order: groups_lock, then lanes_hold, each in a statement before this one.
WITH want AS (
    SELECT * FROM unnest($2::bigint[], $3::bigint[]) AS w (partition_id, target)
),
moved AS (
    UPDATE laneway.lane l
    SET epoch = l.epoch + 1, session_id = NULL, broker_id = NULL, drain_until_at = NULL, suspect_until = 0,
        popped_at = NULL, popped_until_at = NULL, popped_end_offset = NULL
    FROM want
    WHERE l.group_id = $1 AND l.partition_id = want.partition_id
    RETURNING l.partition_id, l.epoch
),
placed AS (
    INSERT INTO laneway.lane_commit (group_id, partition_id, epoch, number, committed_offset)
    SELECT
        $1, moved.partition_id, moved.epoch, 1,
        greatest(least(want.target, coalesce(h.next_offset, 0)), p.start_offset)
    FROM moved
    JOIN want USING (partition_id)
    JOIN laneway.partition p USING (partition_id)
    LEFT JOIN LATERAL (
        SELECT head.next_offset
        FROM laneway.head
        WHERE head.partition_id = moved.partition_id
        ORDER BY head.published_at DESC, head.next_offset DESC
        LIMIT 1
    ) h ON true
    RETURNING partition_id, epoch, committed_offset
),
forgotten AS (
    DELETE FROM laneway.attempt WHERE group_id = $1 AND partition_id = ANY ($2)
)
SELECT p.number, placed.epoch, placed.committed_offset
FROM placed
JOIN laneway.partition p USING (partition_id)
ORDER BY p.number
