-- witness_depth: how far the slowest group of a topic is behind, by one snapshot, for the verifier.
-- $1 topic text
-- One row; 0 if the topic has no group. Locks nothing.
SELECT coalesce(max(behind.messages), 0)::bigint AS messages
FROM (
    SELECT sum(next_offset - committed_offset) AS messages
    FROM laneway.lag
    WHERE topic = $1
    GROUP BY group_name
) AS behind
