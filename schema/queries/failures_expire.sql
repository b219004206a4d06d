-- failures_expire: drops failures that are too old, or whose group is gone, from some pages of their table.
-- $1 from_page bigint, $2 to_page bigint (not included), $3 retention_ms bigint
-- One row: how many went, and how many pages the table has. Reads those pages and no others. Locks the rows that it deletes.
WITH gone AS (
    DELETE FROM laneway.failure t
    WHERE t.ctid >= format('(%s,0)', $1)::tid AND t.ctid < format('(%s,0)', $2)::tid
      AND (
          t.failed_at < now() - $3 * interval '1 millisecond'
          OR NOT EXISTS (SELECT FROM laneway.consumer_group g WHERE g.group_id = t.group_id)
      )
    RETURNING 1
)
SELECT
    (SELECT count(*) FROM gone) AS rows,
    pg_relation_size('laneway.failure') / current_setting('block_size')::bigint AS pages
