-- topics_resume: a topic takes messages and delivers them again.
-- $1 topic_id bigint
-- One row. Order: topics_lock and topics_lock_partitions before this one. Hints at commit.
WITH topics AS (
    UPDATE laneway.topic SET paused_at = NULL WHERE topic_id = $1 AND paused_at IS NOT NULL
),
partitions AS (
    UPDATE laneway.partition SET paused_at = NULL WHERE topic_id = $1 AND paused_at IS NOT NULL
)
SELECT pg_notify('laneway', 'topics')
