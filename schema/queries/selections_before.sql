-- selections_before: what was selected under the name of a group before a topic was made or labelled.
-- $1 topic_id bigint, $2 group_name text
-- No row: nobody can have been waiting for the topic. Locks nothing. Reads every selection: asked only when a group is made.
SELECT c.terms, t.labels::text AS labels
FROM laneway.topic t
JOIN laneway.selection c ON c.begun_at < t.changed_at
WHERE t.topic_id = $1 AND c.terms::jsonb ->> 'group' = $2
