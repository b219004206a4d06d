-- Keeps the heads of the last second; partition by partition, see thin_lane.sql.
DO $$
DECLARE
    part bigint;
    newest timestamptz;
BEGIN
    FOR part IN SELECT id FROM partition LOOP
        SELECT published_at INTO newest FROM head WHERE partition_id = part
        ORDER BY published_at DESC, next_offset DESC LIMIT 1;
        DELETE FROM head WHERE partition_id = part AND published_at < newest - interval '1 second';
    END LOOP;
END $$;
\sleep 2 s
