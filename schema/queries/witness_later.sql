-- witness_later: everything that a topic holds, and when it was appended, for the verifier.
-- $1 topic text
-- No row: the topic is empty, or there is none. Locks nothing.
SELECT p.number, m."offset", m.payload, (extract(epoch FROM m.published_at) * 1000000)::bigint AS published_us
FROM laneway.topic t
JOIN laneway.partition p USING (topic_id)
JOIN laneway.message m USING (partition_id)
WHERE t.name = $1 AND t.deleted_at IS NULL
