-- data_keys_hold: keeps data keys open until the transaction ends that writes what they have sealed.
-- $1 data_key_id uuid[], each once
-- Why it divides: it is sent together with what follows it, and only an error stops that. 22012: one of them is closed or gone, and
-- nothing of the transaction happens. Locks their rows, by id, shared: against whoever closes them.
SELECT 1 / (CASE WHEN count(*) = cardinality($1::uuid[]) THEN 1 ELSE 0 END) AS held
FROM (
    SELECT k.data_key_id
    FROM laneway.data_key k
    WHERE k.data_key_id = ANY ($1) AND k.closed_at IS NULL
    ORDER BY k.data_key_id
    FOR SHARE
) AS open
