-- trace_cuts_expired: closed cuts that end before the oldest message that is still stored.
-- No row: none. Locks nothing; reads the catalogue only.
SELECT c.cut_id
FROM laneway.trace_cut c
WHERE c.closed_at IS NOT NULL
  AND c.to_at < coalesce(
      (SELECT min(coalesce(s.first_published_at, s.created_at)) FROM laneway.segment s WHERE s.state = 'attached'),
      clock_timestamp()
  )
ORDER BY c.cut_id
