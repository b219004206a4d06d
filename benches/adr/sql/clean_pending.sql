SELECT gin_clean_pending_list('hop_block_traces');
\sleep 1 s
