-- trace_cut_freeze: freezes a cut that takes no more blocks, and merges what is pending.
VACUUM (FREEZE, TRUNCATE OFF) laneway.trace_block_c{cut_id};
