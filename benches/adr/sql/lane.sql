-- 100 groups x 100 lanes; the sessions commit 8 lanes of group 1 at a time.
CREATE SCHEMA :schema;
SET search_path = :schema;
CREATE TABLE lane (group_id bigint, partition_id bigint, owner uuid, leased_until timestamptz, epoch bigint,
    committed_offset bigint, acked int8multirange, PRIMARY KEY (group_id, partition_id)) WITH (fillfactor = 50);
INSERT INTO lane SELECT g, p, gen_random_uuid(), now(), 1, 0, '{}' FROM generate_series(1, 100) g, generate_series(1, 100) p;
CREATE TABLE lane_commit (group_id bigint, partition_id bigint, epoch bigint, committed_at timestamptz,
    committed_offset bigint, acked int8multirange,
    PRIMARY KEY (group_id, partition_id, epoch, committed_at));
ANALYZE lane, lane_commit;
