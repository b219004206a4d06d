-- partitions_deleted: partitions of deleted topics, with something left to sweep.
-- No row: none. Locks nothing.
SELECT partition_id FROM laneway.partition WHERE deleted_at IS NOT NULL ORDER BY partition_id
