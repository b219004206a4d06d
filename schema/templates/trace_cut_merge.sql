-- trace_cut_merge: moves pending entries into the index of a cut.
SELECT gin_clean_pending_list('laneway.trace_block_c{cut_id}_traces'::regclass);
