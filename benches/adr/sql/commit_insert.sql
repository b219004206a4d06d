\set b :client_id * 8
\set n :n + 10
WITH f AS MATERIALIZED (SELECT l.partition_id FROM unnest(ARRAY[:b::bigint+1,:b::bigint+2,:b::bigint+3,:b::bigint+4,:b::bigint+5,:b::bigint+6,:b::bigint+7,:b::bigint+8]) v (p) JOIN lane l ON l.group_id = 1 AND l.partition_id = v.p AND l.epoch = 1 FOR NO KEY UPDATE OF l) INSERT INTO lane_commit SELECT 1, partition_id, 1, clock_timestamp(), :n, int8multirange(int8range(:n + 2, :n + 4)) FROM f;
