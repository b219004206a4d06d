-- dead_letters_delete: drops a dead letter for good.
-- $1 dead_letter_id bigint
-- Count 0: there is none of that id (any more). Locks its row.
DELETE FROM laneway.dead_letter d
USING laneway.topic t
WHERE d.dead_letter_id = $1 AND t.topic_id = d.topic_id AND t.deleted_at IS NULL
