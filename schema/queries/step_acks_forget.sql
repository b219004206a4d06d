-- step_acks_forget: drops acks of steps that the newest commit of their lane knows, oldest first.
-- $1 limit bigint, $2 age_ms bigint
-- Count of rows = those gone; fewer than the limit: done, for now. Locks the rows that it deletes.
DELETE FROM laneway.step_ack
WHERE ctid = ANY (ARRAY (
    SELECT s.ctid
    FROM laneway.step_ack s
    LEFT JOIN LATERAL (
        SELECT lc.epoch, lc.committed_offset, lc.acked
        FROM laneway.lane_commit lc
        WHERE lc.group_id = s.group_id AND lc.partition_id = s.partition_id
        ORDER BY lc.epoch DESC, lc.number DESC
        LIMIT 1
    ) c ON true
    WHERE s.acked_at < clock_timestamp() - make_interval(secs => $2 / 1000.0)
      AND (
          c.epoch > s.epoch OR c.committed_offset >= s.to_offset
          OR c.acked @> int8range(greatest(s.from_offset, c.committed_offset), s.to_offset)
          OR NOT EXISTS (
              SELECT FROM laneway.lane l WHERE l.group_id = s.group_id AND l.partition_id = s.partition_id
          )
      )
    ORDER BY s.acked_at
    LIMIT $1
))
