-- witness_lag: lanes of a topic, and how many of them are behind, for the verifier.
-- $1 topic text
-- One row. Locks nothing.
SELECT count(*) AS lanes, count(*) FILTER (WHERE committed_offset < next_offset) AS behind
FROM laneway.lag
WHERE topic = $1
