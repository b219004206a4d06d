-- producer_runs_expire: forgets runs that no topic's window remembers, from some pages of their table.
-- $1 from_page bigint, $2 to_page bigint (not included)
-- One row: how many went, and how many pages the table has. Reads those pages and no others. Locks the rows that it deletes.
WITH gone AS (
    DELETE FROM laneway.producer_run r
    WHERE r.ctid >= format('(%s,0)', $1)::tid AND r.ctid < format('(%s,0)', $2)::tid
      AND r.published_at < clock_timestamp()
          - (SELECT coalesce(max(dedup_window_ms), 0) FROM laneway.topic) * interval '1 millisecond'
    RETURNING 1
)
SELECT
    (SELECT count(*) FROM gone) AS rows,
    pg_relation_size('laneway.producer_run') / current_setting('block_size')::bigint AS pages
