-- trace_cuts_survey: the newest cut of the trace index, how full it is, and the time.
-- One row; its cut columns are null if there is no cut yet. Locks nothing.
SELECT
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us,
    (extract(epoch FROM c.from_at) * 1000000)::bigint AS from_us,
    (extract(epoch FROM c.to_at) * 1000000)::bigint AS to_us,
    coalesce(pg_table_size(to_regclass(format('laneway.trace_block_c%s', c.cut_id))), 0) AS bytes
FROM (SELECT 1) AS one
LEFT JOIN LATERAL (SELECT * FROM laneway.trace_cut ORDER BY to_at DESC LIMIT 1) c ON true
