-- What is due in one partition is found without stepping over what waits in others.

CREATE INDEX schedule_partition_id ON laneway.schedule (partition_id, due_at, schedule_id);
