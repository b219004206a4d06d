-- attempts_forget: messages of a lane that are done have no attempts any more. The lane's row is locked and fenced.
-- $1 group_id bigint, $2 partition_id bigint, $3 committed_offset bigint, $4 acked text (a multirange)
DELETE FROM laneway.attempt
WHERE group_id = $1 AND partition_id = $2 AND ("offset" < $3 OR $4::int8multirange @> "offset")
