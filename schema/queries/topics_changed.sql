-- topics_changed: topics that were made, labelled or deleted since a moment, and when that was asked.
-- $1 since timestamptz (null: all that are there)
-- One row at least; with a null topic_id: nothing has changed. Locks nothing. Why a moment of before the last look is asked for:
-- a change is dated before it is committed.
WITH asked AS (
    SELECT clock_timestamp() AS asked_at
)
SELECT asked.asked_at, t.topic_id, t.name, t.labels::text AS labels, t.deleted_at IS NOT NULL AS deleted
FROM asked
LEFT JOIN laneway.topic t ON t.changed_at >= coalesce($1, '-infinity') AND ($1 IS NOT NULL OR t.deleted_at IS NULL)
