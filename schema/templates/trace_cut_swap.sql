-- trace_cut_swap: puts the copy of a cut in its place. Locks the trace index exclusively for an instant.
DROP TABLE laneway.trace_block_c{cut_id};
ALTER TABLE laneway.trace_block_c{cut_id}_next RENAME TO trace_block_c{cut_id};
ALTER INDEX laneway.trace_block_c{cut_id}_next_traces RENAME TO trace_block_c{cut_id}_traces;
ALTER TABLE laneway.trace_block ATTACH PARTITION laneway.trace_block_c{cut_id} FOR VALUES
    FROM (to_timestamp({from_us} / 1000000.0))
    TO (to_timestamp({to_us} / 1000000.0));
ALTER TABLE laneway.trace_block_c{cut_id} DROP CONSTRAINT in_cut;
