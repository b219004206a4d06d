-- trace_links_trim: forgets the links of messages that retention has dropped.
-- $1 partition_id bigint, $2 start_offset bigint
DELETE FROM laneway.trace_link WHERE partition_id = $1 AND "offset" < $2
