-- data_keys_closed: those of some data keys under which nothing is written any more: closed, or gone.
-- $1 data_key_id uuid[], each once
-- No row: all of them are open. What is closed stays closed. Locks nothing.
SELECT w.data_key_id
FROM unnest($1::uuid[]) AS w (data_key_id)
WHERE NOT EXISTS (SELECT FROM laneway.data_key k WHERE k.data_key_id = w.data_key_id AND k.closed_at IS NULL)
