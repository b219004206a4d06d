-- data_keys_bound: writes down how far the messages go that closed data keys have sealed: to the head, as it is after the closing.
-- Count of rows = those bounded. Order: data_keys_close must have been committed before, so that this snapshot has every flush that
-- held them. Locks those rows; what is locked is left to the next time.
UPDATE laneway.data_key k
SET end_offset = coalesce(
    (
        SELECT head.next_offset
        FROM laneway.head
        WHERE head.partition_id = k.partition_id
        ORDER BY head.published_at DESC, head.next_offset DESC
        LIMIT 1
    ),
    0
)
WHERE k.data_key_id = ANY (ARRAY (
    SELECT c.data_key_id
    FROM laneway.data_key c
    WHERE c.closed_at IS NOT NULL AND c.end_offset IS NULL
    FOR UPDATE SKIP LOCKED
))
