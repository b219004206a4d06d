-- segment_create: the table of one segment, with its index. {segment_id}, {partition_id}, {first_offset}, {end_offset}:
-- integers that we generated. Autovacuum stays out: rows are only inserted, and a sealed segment is frozen once.
CREATE TABLE laneway.message_s{segment_id} (LIKE laneway.message INCLUDING DEFAULTS)
    WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
ALTER TABLE laneway.message_s{segment_id} ADD PRIMARY KEY ("offset");
ALTER TABLE laneway.message_p{partition_id}
    ATTACH PARTITION laneway.message_s{segment_id} FOR VALUES FROM ({first_offset}) TO ({end_offset});
