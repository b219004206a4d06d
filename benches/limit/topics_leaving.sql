-- Deleted topics that are not swept yet.
SELECT count(*) FROM laneway.topic WHERE deleted_at IS NOT NULL
