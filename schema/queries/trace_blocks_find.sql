-- trace_blocks_find: the blocks that may hold messages of a trace, in the order they were written, page by page.
-- $1 prefix bigint (the first 64 bits of the trace id), $2 limit bigint
-- $3 published_at timestamptz, $4 partition_id bigint, $5 first_offset bigint: the last block of the page before; $3 null: from the first
-- No row: no message of it. Two traces may share a prefix: the caller looks at the messages. Locks nothing.
SELECT b.partition_id, b.first_offset, b.messages, b.published_at
FROM laneway.trace_block b
WHERE b.traces @> ARRAY[$1::bigint]
  AND (
      $3::timestamptz IS NULL
      OR (b.published_at, b.partition_id, b.first_offset) > ($3::timestamptz, $4::bigint, $5::bigint)
  )
ORDER BY b.published_at, b.partition_id, b.first_offset
LIMIT $2
