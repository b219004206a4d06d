-- parks_record: ranges of a lane were copied aside because their keys are parked. The lane's row is locked and fenced.
-- $1 group_id bigint, $2 partition_id bigint, $3 first_offsets bigint[], $4 end_offsets bigint[], $5 reason text
INSERT INTO laneway.failure (group_id, partition_id, "offset", attempt, outcome, reason, failed_at, end_offset)
SELECT $1, $2, e.first_offset, 0, 'park', $5, now(), e.end_offset
FROM unnest($3::bigint[], $4::bigint[]) AS e (first_offset, end_offset)
