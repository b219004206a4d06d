-- lane_commits_insert: moves the committed offsets of the lanes that lanes_lock holds in the same transaction, and writes down
-- when what is newly done was delivered and done.
-- lanes: $1 group_ids bigint[], $2 partition_ids bigint[], $3 epochs bigint[], $4 sessions uuid[],
--        $5 numbers bigint[], $6 committed_offsets bigint[], $7 acked text[] (multiranges)
-- times: $8 places integer[] (of their lanes), $9 first_offsets bigint[], $10 end_offsets bigint[],
--        $11 delivered_us bigint[], $12 acked_us bigint[] (how long ago, when the transaction was begun)
-- Rows: 'stored' or 'lost' per lane, by its place, counted from 1. A lane without a row was busy: try again.
-- A commit that is stored already, because its first answer was lost, has told its times.
WITH wanted AS (
    SELECT *
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::uuid[], $5::bigint[], $6::bigint[], $7::text[]) WITH ORDINALITY
        AS w (group_id, partition_id, epoch, session_id, number, committed_offset, acked, place)
),
stored AS (
    INSERT INTO laneway.lane_commit (group_id, partition_id, epoch, number, committed_offset, acked)
    SELECT group_id, partition_id, epoch, number, committed_offset, acked::int8multirange
    FROM wanted
    WHERE place = ANY (ARRAY(SELECT unnest(string_to_array(current_setting('laneway.held'), ','))::bigint))
    ON CONFLICT DO NOTHING
    RETURNING group_id, partition_id
),
times AS (
    INSERT INTO laneway.lane_time (group_id, partition_id, first_offset, end_offset, delivered_at, acked_at)
    SELECT
        stored.group_id, stored.partition_id, t.first_offset, t.end_offset,
        now() - t.delivered_us * interval '1 microsecond', now() - t.acked_us * interval '1 microsecond'
    FROM unnest($8::integer[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[])
        AS t (place, first_offset, end_offset, delivered_us, acked_us)
    JOIN wanted w ON w.place = t.place
    JOIN stored ON stored.group_id = w.group_id AND stored.partition_id = w.partition_id
)
SELECT place::integer AS place, 'stored' AS kind
FROM wanted
WHERE place = ANY (ARRAY(SELECT unnest(string_to_array(current_setting('laneway.held'), ','))::bigint))
UNION ALL
SELECT place::integer, 'lost'
FROM wanted w
WHERE NOT EXISTS (
    SELECT FROM laneway.lane l
    WHERE l.group_id = w.group_id AND l.partition_id = w.partition_id AND l.epoch = w.epoch AND l.session_id = w.session_id
)
