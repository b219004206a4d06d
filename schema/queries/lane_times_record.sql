-- lane_times_record: writes down when ranges of one lane were delivered and done, with the commit of a settlement. The lane's row is
-- locked and fenced by the transaction.
-- $1 group_id bigint, $2 partition_id bigint, $3 epoch bigint,
-- $4 numbers bigint[] (of the commit that a range is on its way with; 0: none),
-- $5 first_offsets bigint[], $6 end_offsets bigint[],
-- $7 delivered_us bigint[], $8 acked_us bigint[] (how long ago, when the transaction was begun)
-- A range whose commit has arrived meanwhile is written down already.
INSERT INTO laneway.lane_time (group_id, partition_id, first_offset, end_offset, delivered_at, acked_at)
SELECT
    $1, $2, t.first_offset, t.end_offset,
    now() - t.delivered_us * interval '1 microsecond', now() - t.acked_us * interval '1 microsecond'
FROM unnest($4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
    AS t (number, first_offset, end_offset, delivered_us, acked_us)
WHERE NOT EXISTS (
    SELECT FROM laneway.lane_commit c
    WHERE c.group_id = $1 AND c.partition_id = $2 AND c.epoch = $3 AND c.number = t.number
)
