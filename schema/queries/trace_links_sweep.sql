-- trace_links_sweep: drops the links of a deleted partition, some at a time.
-- $1 partition_id bigint, $2 limit bigint
-- Count of rows = those gone; fewer than the limit: done, unless another broker does the same. Locks those rows.
DELETE FROM laneway.trace_link
WHERE ctid = ANY (ARRAY (SELECT ctid FROM laneway.trace_link WHERE partition_id = $1 LIMIT $2))
