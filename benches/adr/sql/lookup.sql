-- :messages messages in a topic of 8 partitions x 5 segments, 1,000 further partitions x 2 segments x 100 messages,
-- random trace ids. Every 4,999th message of the topic belongs to one of the traces of about 10 hops that are looked up.
SET synchronous_commit = off;
SET work_mem = '256MB';
CREATE TABLE message (
    partition_id bigint NOT NULL, "offset" bigint NOT NULL, published_at timestamptz NOT NULL, trace_id uuid,
    cause_partition_id bigint, cause_offset bigint, key bytea, transaction_id text, headers text,
    content_type text, payload bytea, producer text
) PARTITION BY LIST (partition_id);
CREATE TABLE one_payload AS SELECT decode(string_agg(md5(i::text), ''), 'hex') AS payload FROM generate_series(1, 12) i;
CREATE FUNCTION prefix(uuid) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN ('x' || left(replace($1::text, '-', ''), 16))::bit(64)::bigint;
CREATE FUNCTION wanted(bigint) RETURNS uuid LANGUAGE sql IMMUTABLE RETURN md5('trace ' || $1)::uuid;
CREATE FUNCTION make_partition(p int, segments int, per int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE message_%s PARTITION OF message FOR VALUES IN (%s) PARTITION BY RANGE ("offset")', p, p);
    FOR s IN 0..segments - 1 LOOP
        EXECUTE format('CREATE TABLE message_%s_%s PARTITION OF message_%s FOR VALUES FROM (%s) TO (%s)',
                       p, s, p, s * per, (s + 1) * per);
        EXECUTE format('INSERT INTO message_%s_%s SELECT %s, o, now(), CASE WHEN (o * 8 + %s) %% 4999 = 0 AND %s <= 8
                        THEN wanted((o * 8 + %s) / 4999 %% (:messages / 49990)) ELSE gen_random_uuid() END,
                        NULL, NULL, NULL, NULL, NULL, ''application/octet-stream'', payload, ''bench''
                        FROM one_payload, generate_series(%s, %s) o', p, s, p, p, p, p, s * per, (s + 1) * per - 1);
        EXECUTE format('CREATE UNIQUE INDEX ON message_%s_%s ("offset")', p, s);
        EXECUTE format('CREATE INDEX ON message_%s_%s (trace_id)', p, s);
    END LOOP;
END $$;
SELECT make_partition(p, 5, :messages / 40) FROM generate_series(1, 8) p;
SELECT make_partition(p, 2, 100) FROM generate_series(9, 1008) p;
CREATE TABLE hop (trace_id uuid, partition_id bigint, "offset" bigint);
INSERT INTO hop SELECT trace_id, partition_id, "offset" FROM message;
CREATE INDEX ON hop (trace_id);
CREATE TABLE hop_block (partition_id bigint, first_offset bigint, messages int, published_at timestamptz, traces bigint[]);
ALTER TABLE hop_block ALTER traces SET STORAGE PLAIN;
INSERT INTO hop_block
SELECT partition_id, min("offset"), count(*), min(published_at), array_agg(prefix(trace_id))
FROM message GROUP BY partition_id, "offset" / 125;
CREATE INDEX hop_block_traces ON hop_block USING gin (traces) WITH (fastupdate = on, gin_pending_list_limit = 65536);
-- the same hops as runs of 250,000, the last 250,000 not folded yet
CREATE TABLE numbered AS SELECT row_number() OVER () - 1 AS n, * FROM hop_block WHERE partition_id <= 8;
CREATE TABLE tail AS SELECT * FROM numbered WHERE n >= :messages / 125 - 2000;
CREATE TABLE hop_run (bucket int, run timestamptz, traces bigint[], partitions bigint[], offsets bigint[]);
ALTER TABLE hop_run ALTER traces SET STORAGE EXTERNAL, ALTER partitions SET STORAGE EXTERNAL, ALTER offsets SET STORAGE EXTERNAL;
INSERT INTO hop_run
SELECT t & 255, now() + n / 2000 * interval '1 second', array_agg(t), array_agg(partition_id), array_agg(first_offset + i - 1)
FROM numbered, unnest(traces) WITH ORDINALITY u (t, i) WHERE n < :messages / 125 - 2000 GROUP BY 1, 2;
CREATE INDEX ON hop_run (bucket, run);
