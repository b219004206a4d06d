\set p :client_id * 4 + 1
BEGIN;
UPDATE partition_head SET next_offset = next_offset + 5, bytes_total = bytes_total + 1000, published_at = clock_timestamp() WHERE partition_id = :p RETURNING next_offset - 5 AS next \gset
INSERT INTO message SELECT :p, :next::bigint + i - 1, now(), NULL, NULL, NULL, NULL, NULL, NULL, 'application/octet-stream', payload, 'bench' FROM payload;
COMMIT;
