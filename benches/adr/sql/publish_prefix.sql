\set k :k + 1
INSERT INTO message SELECT s.slot, :k::bigint * 125 + u.i, now(), u.t, NULL, NULL, NULL, NULL, NULL, 'application/octet-stream', p.payload, 'bench', u.x FROM source s, unnest(s.traces, s.prefixes) WITH ORDINALITY u (t, x, i) JOIN payload p ON p.i = u.i WHERE s.batch = :k AND s.slot BETWEEN :client_id * 4 + 1 AND :client_id * 4 + 4;
