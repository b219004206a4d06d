-- trace_blocks_find: the blocks that may hold messages of a trace, in the order they were written.
-- $1 prefix bigint (the first 64 bits of the trace id), $2 limit bigint
-- No row: no message of it. Two traces may share a prefix: the caller looks at the messages. Locks nothing.
SELECT b.partition_id, b.first_offset, b.messages
FROM laneway.trace_block b
WHERE b.traces @> ARRAY[$1::bigint]
ORDER BY b.published_at, b.partition_id, b.first_offset
LIMIT $2
