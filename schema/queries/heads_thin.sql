-- heads_thin: drops the heads between the ones that serve as time index: the last of each run of $3 offsets stays.
-- $1 partition_id bigint, $2 since timestamptz (thinned before this already), $3 spacing bigint
-- One row: the published_at of the newest head, up to which it is thin now, and how many went; null: no head at all.
-- Invariant: the newest head of a partition is never dropped. Locks the rows that it deletes.
WITH run AS (
    SELECT
        published_at, next_offset,
        lead(next_offset) OVER (ORDER BY published_at, next_offset) AS following
    FROM laneway.head
    WHERE partition_id = $1 AND published_at >= $2
),
gone AS (
    DELETE FROM laneway.head h
    USING run
    WHERE h.partition_id = $1 AND h.published_at = run.published_at AND h.next_offset = run.next_offset
      AND run.following IS NOT NULL AND run.next_offset / $3 = run.following / $3
    RETURNING 1
)
SELECT (SELECT max(published_at) FROM run) AS thinned_to, (SELECT count(*) FROM gone) AS dropped
