-- topics_grow: adds partitions to a topic up to a count; it never takes one away. Those of a paused topic are paused, and those of an
-- encrypted one take only what is sealed.
-- $1 topic_id bigint, $2 partitions integer
-- One row: the count it has now. Order: topics_lock in a statement before this one, so that the count is not from before
-- the wait for the lock.
WITH had AS (
    SELECT count(*)::integer AS partitions FROM laneway.partition WHERE topic_id = $1
),
made AS (
    INSERT INTO laneway.partition (topic_id, number, paused_at, encrypted_at)
    SELECT $1, n, t.paused_at, CASE WHEN t.encryption <> 'none' THEN clock_timestamp() END
    FROM had, laneway.topic t, generate_series(had.partitions, $2 - 1) AS n
    WHERE t.topic_id = $1
)
SELECT greatest(had.partitions, $2) AS partitions, pg_notify('laneway', 'topics') FROM had
