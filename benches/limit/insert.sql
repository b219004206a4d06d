-- The statement of the limit: 500 rows, autocommit, as fast as it goes. Frozen, like the table.
-- $1 offsets bigint[], $2 trace ids uuid[], $3 keys bytea[], $4 payloads bytea[]
INSERT INTO laneway_limit_{number} ("offset", trace_id, key, published_at, payload)
SELECT unnest($1::bigint[]), unnest($2::uuid[]), unnest($3::bytea[]), clock_timestamp(), unnest($4::bytea[])
