-- Messages, partitions and both kinds of heads of one schema.
CREATE SCHEMA :schema;
SET search_path = :schema;
CREATE TABLE message (
    partition_id bigint NOT NULL, "offset" bigint NOT NULL, published_at timestamptz NOT NULL, trace_id uuid,
    cause_partition_id bigint, cause_offset bigint, key bytea, transaction_id text, headers text,
    content_type text, payload bytea, producer text
) PARTITION BY LIST (partition_id);
CREATE TABLE partition (id bigint PRIMARY KEY, name text);
INSERT INTO partition SELECT p, 'p' || p FROM generate_series(1, 8) p;
DO $$
BEGIN
    FOR p IN 1..8 LOOP
        EXECUTE format('CREATE TABLE message_%s PARTITION OF message FOR VALUES IN (%s) PARTITION BY RANGE ("offset")', p, p);
        EXECUTE format('CREATE TABLE message_%s_0 PARTITION OF message_%s FOR VALUES FROM (0) TO (1000000000)', p, p);
        EXECUTE format('CREATE UNIQUE INDEX ON message_%s_0 ("offset")', p);
    END LOOP;
END $$;
CREATE TABLE payload AS
SELECT i, decode(repeat(md5(random()::text), 12) || repeat('0', 16), 'hex') AS payload FROM generate_series(1, 5) i;
CREATE TABLE partition_head (partition_id bigint PRIMARY KEY, next_offset bigint, bytes_total bigint,
    published_at timestamptz) WITH (fillfactor = 50);
INSERT INTO partition_head SELECT id, 0, 0, now() FROM partition;
CREATE TABLE head (partition_id bigint, published_at timestamptz, next_offset bigint, bytes_total bigint,
    PRIMARY KEY (partition_id, published_at, next_offset));
INSERT INTO head SELECT id, now(), 0, 0 FROM partition;
ANALYZE partition, partition_head, head, payload;
