-- data_keys_any: whether there is a data key at all. Without encrypted topics there is none, and nothing to tidy.
-- One row. Locks nothing.
SELECT EXISTS (SELECT FROM laneway.data_key) AS found
