-- brokers_hold: keeps a living broker from being buried until the transaction ends.
-- $1 broker_id uuid
-- No row: it was buried; nothing may be done in its name. Locks its row against burial; its heartbeat goes on.
SELECT broker_id FROM laneway.broker WHERE broker_id = $1 AND dead_at IS NULL FOR KEY SHARE
