-- topics_pause: a topic takes no messages and delivers none from here on, nor do partitions that it gets later.
-- $1 topic_id bigint
-- One row: since when it is paused, which may be earlier. Order: topics_lock and topics_lock_partitions before this one: what
-- was in a flush then is committed, and what comes later finds the mark. Hints at commit, to those who deliver.
WITH topics AS (
    UPDATE laneway.topic SET paused_at = coalesce(paused_at, clock_timestamp()) WHERE topic_id = $1 RETURNING paused_at
),
partitions AS (
    UPDATE laneway.partition p SET paused_at = topics.paused_at FROM topics WHERE p.topic_id = $1 AND p.paused_at IS NULL
)
SELECT paused_at, pg_notify('laneway', 'topics') FROM topics
