-- partitions_lock: takes the locks of a flush, and leaves out the partitions that somebody else holds.
-- $1 partition_ids bigint[], $2 plain bigint[] (those of them that are to get a message which is not sealed)
-- The ids obtained go into the transaction-local setting laneway.locked, which messages_append reads: both are sent in
-- one round trip, and only the second has a snapshot that is younger than the locks.
-- One row: those that are paused, and those of $2 that take only what is sealed. They are locked, too, but get nothing: whoever
-- pauses a topic or turns its encryption on holds the same locks.
-- Locks partition rows by id, until commit: commit order is offset order.
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
    FOR NO KEY UPDATE SKIP LOCKED
) AS held
