-- brokers_forget: drops the rows of brokers that were buried long ago and have left nothing behind.
-- $1 seconds double precision
DELETE FROM laneway.broker b
WHERE b.dead_at < clock_timestamp() - make_interval(secs => $1)
  AND NOT EXISTS (SELECT FROM laneway.session s WHERE s.broker_id = b.broker_id)
