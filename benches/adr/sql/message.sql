-- The messages of one schema: root -> 8 partitions by list -> segments by offset range.
CREATE SCHEMA :schema;
SET search_path = :schema;
CREATE TABLE message (
    partition_id bigint NOT NULL, "offset" bigint NOT NULL, published_at timestamptz NOT NULL, trace_id uuid,
    cause_partition_id bigint, cause_offset bigint, key bytea, transaction_id text, headers text,
    content_type text, payload bytea, producer text:extra
) PARTITION BY LIST (partition_id);
DO $$
BEGIN
    FOR p IN 1..8 LOOP
        EXECUTE format('CREATE TABLE message_%s PARTITION OF message FOR VALUES IN (%s) PARTITION BY RANGE ("offset")', p, p);
        FOR s IN 0..1 LOOP
            EXECUTE format('CREATE TABLE message_%s_%s PARTITION OF message_%s FOR VALUES FROM (%s) TO (%s)',
                           p, s, p, s * 5000000::bigint, (s + 1) * 5000000::bigint);
            EXECUTE format('CREATE UNIQUE INDEX ON message_%s_%s ("offset")', p, s);
            IF ':segment_index' <> '' THEN
                EXECUTE format('CREATE INDEX ON message_%s_%s :segment_index', p, s);
            END IF;
        END LOOP;
    END LOOP;
END $$;
:more
