-- trace_cuts_unchecked: the closed cut that was looked at longest ago, if that is long enough.
-- $1 seconds double precision (what is long enough)
-- No row: none is due. Locks nothing.
SELECT cut_id,
    (extract(epoch FROM from_at) * 1000000)::bigint AS from_us,
    (extract(epoch FROM to_at) * 1000000)::bigint AS to_us
FROM laneway.trace_cut
WHERE closed_at IS NOT NULL
  AND coalesce(checked_at, closed_at) < clock_timestamp() - make_interval(secs => $1)
ORDER BY coalesce(checked_at, closed_at)
LIMIT 1
