-- trace_links_find: which traces a trace has named, and which have named it, each once.
-- $1 trace_id uuid, $2 limit bigint
-- No row: none. Locks nothing.
(SELECT DISTINCT linked_trace_id AS other, true AS outward FROM laneway.trace_link WHERE trace_id = $1 ORDER BY 1 LIMIT $2)
UNION ALL
(SELECT DISTINCT trace_id, false FROM laneway.trace_link WHERE linked_trace_id = $1 ORDER BY 1 LIMIT $2)
