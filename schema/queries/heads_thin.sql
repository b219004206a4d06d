-- heads_thin: drops the heads of partitions between the ones that serve as time index: the last of each run of $3 offsets stays.
-- $1 partition_ids bigint[], $2 since timestamptz[] (thinned before these already), $3 spacing bigint
-- One row per partition that has a head: the published_at of its newest, up to which it is thin now.
-- Nobody waits for the disk: heads that come back after a crash are dropped with the next ones.
-- Invariant: the newest head of a partition is never dropped. Locks the rows that it deletes.
WITH run AS (
    SELECT
        h.partition_id, h.published_at, h.next_offset,
        lead(h.next_offset) OVER (PARTITION BY h.partition_id ORDER BY h.published_at, h.next_offset) AS following
    FROM unnest($1::bigint[], $2::timestamptz[]) AS w (partition_id, since)
    JOIN laneway.head h ON h.partition_id = w.partition_id AND h.published_at >= w.since
),
gone AS (
    DELETE FROM laneway.head h
    USING run
    WHERE h.partition_id = run.partition_id AND h.published_at = run.published_at AND h.next_offset = run.next_offset
      AND run.following IS NOT NULL AND run.next_offset / $3 = run.following / $3
)
SELECT partition_id, max(published_at) AS thinned_to, set_config('synchronous_commit', 'off', true)
FROM run
GROUP BY partition_id
