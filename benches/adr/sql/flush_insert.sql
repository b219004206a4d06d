\set p :client_id * 4 + 1
BEGIN;
SELECT 1 AS locked FROM partition WHERE id = :p FOR NO KEY UPDATE \gset
SELECT h.next_offset AS next, h.bytes_total AS bytes FROM partition p, LATERAL (SELECT next_offset, bytes_total FROM head WHERE partition_id = p.id ORDER BY published_at DESC, next_offset DESC LIMIT 1) h WHERE p.id = :p \gset
INSERT INTO message SELECT :p, :next::bigint + i - 1, now(), NULL, NULL, NULL, NULL, NULL, NULL, 'application/octet-stream', payload, 'bench' FROM payload;
INSERT INTO head VALUES (:p, clock_timestamp(), :next::bigint + 5, :bytes::bigint + 1000);
COMMIT;
