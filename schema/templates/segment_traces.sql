-- segment_traces: the traces of some messages of one segment.
-- $1 offsets bigint[]
-- Rows: those that it holds. Locks nothing.
SELECT m."offset", m.trace_id FROM laneway.message_s{segment_id} m WHERE m."offset" = ANY ($1)
