-- trace_cut_copy: copies the blocks of a closed cut that still have messages, beside the table that they are in.
-- The check lets ATTACH believe the bounds without reading the table under a lock that every flush would wait for; for
-- that its expressions have to be immutable, as to_timestamp is.
DROP TABLE IF EXISTS laneway.trace_block_c{cut_id}_next;
CREATE TABLE laneway.trace_block_c{cut_id}_next (LIKE laneway.trace_block INCLUDING DEFAULTS INCLUDING STORAGE)
    WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
INSERT INTO laneway.trace_block_c{cut_id}_next
SELECT b.*
FROM laneway.trace_block_c{cut_id} b
JOIN laneway.partition p USING (partition_id)
WHERE b.first_offset + b.messages > p.start_offset;
CREATE INDEX trace_block_c{cut_id}_next_traces ON laneway.trace_block_c{cut_id}_next USING gin (traces)
    WITH (fastupdate = on, gin_pending_list_limit = 16384);
ALTER TABLE laneway.trace_block_c{cut_id}_next ADD CONSTRAINT in_cut CHECK (
    published_at IS NOT NULL
    AND published_at >= to_timestamp({from_us} / 1000000.0)
    AND published_at < to_timestamp({to_us} / 1000000.0)
);
