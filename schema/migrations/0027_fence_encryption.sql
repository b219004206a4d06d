-- Since when a partition takes only payloads that are sealed: whoever writes to it finds that under its lock, and needs no hint.

ALTER TABLE laneway.partition ADD COLUMN encrypted_at timestamptz;
COMMENT ON COLUMN laneway.partition.encrypted_at IS 'Takes no new message that is not sealed: set under its lock when its topic is encrypted.';
UPDATE laneway.partition p
SET encrypted_at = clock_timestamp()
FROM laneway.topic t
WHERE t.topic_id = p.topic_id AND t.encryption <> 'none';
