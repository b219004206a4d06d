-- The chore of variant i: the blocks of the window nobody writes to are folded, then truncated.
SELECT fold_window((extract(epoch FROM now())::bigint / 2 + 1) % 2);
\sleep 1 s
