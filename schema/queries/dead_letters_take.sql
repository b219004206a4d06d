-- dead_letters_take: takes a dead letter out, so that the same transaction can publish it again.
-- $1 dead_letter_id bigint
-- No row: there is none of that id (any more). Locks its row: of two who take it, the second finds none.
DELETE FROM laneway.dead_letter d
USING laneway.topic t, laneway.partition p
WHERE d.dead_letter_id = $1 AND t.topic_id = d.topic_id AND p.partition_id = d.partition_id AND t.deleted_at IS NULL
RETURNING
    d.dead_letter_id, t.name AS topic, p.number, d.partition_id, d.group_name, d.attempts, d.reason, d.dead_at,
    d."offset", d.published_at, d.trace_id, d.cause_partition_id, d.cause_offset, d.key, d.transaction_id, d.headers,
    d.content_type, d.payload, d.producer, NULL::bigint AS ttl_ms, d.data_key_id,
    d.topic_id, t.encryption
