-- partitions_lock_waiting: as partitions_lock, but waits for its turn, up to lock_timeout.
-- $1 partition_ids bigint[], $2 plain bigint[]
-- For a partition that was left out several times and is now flushed alone. Neither in the setting nor in an answer: it
-- no longer exists.
SELECT
    set_config(
        'laneway.locked',
        coalesce(
            string_agg(held.partition_id::text, ',') FILTER (
                WHERE held.paused_at IS NULL AND (held.encrypted_at IS NULL OR held.partition_id <> ALL ($2))
            ),
            ''
        ),
        true
    ),
    coalesce(array_agg(held.partition_id) FILTER (WHERE held.paused_at IS NOT NULL), '{}') AS paused,
    coalesce(
        array_agg(held.partition_id) FILTER (WHERE held.encrypted_at IS NOT NULL AND held.partition_id = ANY ($2)), '{}'
    ) AS unsealed
FROM (
    SELECT p.partition_id, p.paused_at, p.encrypted_at
    FROM laneway.partition p
    WHERE p.partition_id = ANY ($1) AND p.deleted_at IS NULL
    ORDER BY p.partition_id
    FOR NO KEY UPDATE
) AS held
