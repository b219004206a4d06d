-- topics_delete: frees the name of a topic and closes its partitions; what they hold is swept later.
-- $1 topic_id bigint
-- One row. Order: topics_lock and topics_lock_partitions before this one.
WITH topics AS (
    UPDATE laneway.topic SET deleted_at = clock_timestamp(), changed_at = clock_timestamp() WHERE topic_id = $1
),
partitions AS (
    UPDATE laneway.partition SET deleted_at = clock_timestamp() WHERE topic_id = $1
)
SELECT pg_notify('laneway', 'topics')
