-- trace_cut_drop: gives the space of a cut back at once.
DROP TABLE laneway.trace_block_c{cut_id};
