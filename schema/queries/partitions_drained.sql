-- partitions_drained: whether no segment of a partition is left, attached or not.
-- $1 partition_id bigint
-- One row. Order: segments_try_lock before this one, so that nobody makes a segment meanwhile. Locks nothing.
SELECT NOT EXISTS (SELECT FROM laneway.segment WHERE partition_id = $1) AS drained
