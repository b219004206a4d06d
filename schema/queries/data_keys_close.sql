-- data_keys_close: closes data keys that nobody seals with any more: those given, and those whose broker lives no more.
-- $1 data_key_id uuid[]
-- Count of rows = those closed. What somebody is writing under at the moment is left to the next time. Locks those rows.
UPDATE laneway.data_key
SET closed_at = clock_timestamp()
WHERE data_key_id = ANY (ARRAY (
    SELECT k.data_key_id
    FROM laneway.data_key k
    WHERE k.closed_at IS NULL
      AND (
          k.data_key_id = ANY ($1)
          OR NOT EXISTS (SELECT FROM laneway.broker b WHERE b.broker_id = k.broker_id AND b.dead_at IS NULL)
      )
    FOR UPDATE SKIP LOCKED
))
