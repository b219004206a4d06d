\set b :client_id * 8
\set n :n + 10
UPDATE lane l SET committed_offset = :n, acked = int8multirange(int8range(:n + 2, :n + 4)) FROM unnest(ARRAY[:b::bigint+1,:b::bigint+2,:b::bigint+3,:b::bigint+4,:b::bigint+5,:b::bigint+6,:b::bigint+7,:b::bigint+8]) v (p) WHERE l.group_id = 1 AND l.partition_id = v.p AND l.epoch = 1;
