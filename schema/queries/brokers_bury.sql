-- brokers_bury: ends the lives of brokers that have not been heard of in time. One atomic event each.
-- No row: all others live. Locks the rows of the dead, against those who act in their name too (brokers_hold); what is
-- locked is left to the next time.
UPDATE laneway.broker
SET dead_at = clock_timestamp()
WHERE broker_id IN (
    SELECT broker_id
    FROM laneway.broker
    WHERE dead_at IS NULL AND expires_at < clock_timestamp()
    ORDER BY broker_id
    FOR UPDATE SKIP LOCKED
)
RETURNING broker_id
