-- trace_cut_create: the table of one cut of the trace index, [{from_us}, {to_us}) in microseconds since 1970.
-- fastupdate: a flush appends its entries to a pending list; upkeep merges them beside the publish path. The limit is what a
-- flush merges by itself at the latest, should no broker do the upkeep.
CREATE TABLE laneway.trace_block_c{cut_id} (LIKE laneway.trace_block INCLUDING DEFAULTS INCLUDING STORAGE)
    WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
CREATE INDEX trace_block_c{cut_id}_traces ON laneway.trace_block_c{cut_id} USING gin (traces)
    WITH (fastupdate = on, gin_pending_list_limit = 16384);
ALTER TABLE laneway.trace_block ATTACH PARTITION laneway.trace_block_c{cut_id} FOR VALUES
    FROM (to_timestamp({from_us} / 1000000.0))
    TO (to_timestamp({to_us} / 1000000.0));
