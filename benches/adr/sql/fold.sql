-- The chore of variant h: blocks become one row per bucket, then they are gone.
SELECT fold();
VACUUM hop_block;
\sleep 1 s
