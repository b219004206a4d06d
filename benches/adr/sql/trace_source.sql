-- Trace ids as a client would hand them over: one array per (flush, partition).
-- prefixes holds the first eight bytes of each id as a bigint.
CREATE TABLE payload AS
SELECT i, decode(string_agg(md5(random()::text), ''), 'hex') || decode(left(md5(random()::text), 16), 'hex') AS payload
FROM generate_series(1, 125) i, generate_series(1, 12) j GROUP BY i;
CREATE FUNCTION prefix(uuid) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN ('x' || left(replace($1::text, '-', ''), 16))::bit(64)::bigint;
CREATE SCHEMA ids_random;
CREATE SCHEMA ids_v7;
CREATE TABLE ids_random.source (batch int, slot int, traces uuid[], prefixes bigint[]);
ALTER TABLE ids_random.source ALTER traces SET STORAGE PLAIN, ALTER prefixes SET STORAGE PLAIN;
CREATE TABLE ids_v7.source (LIKE ids_random.source INCLUDING STORAGE);
INSERT INTO ids_random.source
SELECT batch, slot, array_agg(t), array_agg(prefix(t))
FROM (SELECT batch, slot, gen_random_uuid() AS t
      FROM generate_series(1, :batches) batch, generate_series(1, 8) slot, generate_series(1, 125) i OFFSET 0) x
GROUP BY batch, slot;
-- 1,000 messages in each 20 ms, the time in the first 48 bits
INSERT INTO ids_v7.source
SELECT batch, slot, array_agg(t), array_agg(prefix(t))
FROM (SELECT batch, slot, (lpad(to_hex(1750000000000 + batch * 20 + i * 20 / 125), 12, '0') || '7'
                           || substr(md5(random()::text), 1, 19))::uuid AS t
      FROM generate_series(1, :batches) batch, generate_series(1, 8) slot, generate_series(1, 125) i OFFSET 0) x
GROUP BY batch, slot;
CREATE INDEX ON ids_random.source (batch, slot);
CREATE INDEX ON ids_v7.source (batch, slot);
ANALYZE;
