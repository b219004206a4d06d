-- topics_encrypted: how many topics are encrypted.
-- One row. Locks nothing.
SELECT count(*) AS topics FROM laneway.topic WHERE encryption <> 'none' AND deleted_at IS NULL
