-- steps_find: what a step has done.
-- $1 step_id uuid
-- No row: it is not done, or too long ago.
SELECT digest, partitions, offsets FROM laneway.step WHERE step_id = $1
