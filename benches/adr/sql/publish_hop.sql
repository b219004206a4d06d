\set k :k + 1
BEGIN;
INSERT INTO message SELECT s.slot, :k::bigint * 125 + u.i, now(), u.t, NULL, NULL, NULL, NULL, NULL, 'application/octet-stream', p.payload, 'bench' FROM source s, unnest(s.traces) WITH ORDINALITY u (t, i) JOIN payload p ON p.i = u.i WHERE s.batch = :k AND s.slot BETWEEN :client_id * 4 + 1 AND :client_id * 4 + 4;
INSERT INTO hop SELECT u.t, s.slot, :k::bigint * 125 + u.i FROM source s, unnest(s.traces) WITH ORDINALITY u (t, i) WHERE s.batch = :k AND s.slot BETWEEN :client_id * 4 + 1 AND :client_id * 4 + 4;
COMMIT;
