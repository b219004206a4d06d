-- trace_cut_swap: puts the copy of a cut in its place. Locks the trace index exclusively for an instant.
DROP TABLE laneway.trace_block_c{cut_id};
ALTER TABLE laneway.trace_block_c{cut_id}_next RENAME TO trace_block_c{cut_id};
ALTER INDEX laneway.trace_block_c{cut_id}_next_traces RENAME TO trace_block_c{cut_id}_traces;
ALTER TABLE laneway.trace_block ATTACH PARTITION laneway.trace_block_c{cut_id} FOR VALUES
    FROM ('epoch'::timestamptz + {from_us} * interval '1 microsecond')
    TO ('epoch'::timestamptz + {to_us} * interval '1 microsecond');
ALTER TABLE laneway.trace_block_c{cut_id} DROP CONSTRAINT in_cut;
