-- trace_groups: what each group has made of some messages.
-- $1 partition_ids bigint[], $2 offsets bigint[] (one message each)
-- Rows: a message (its place, from 1) and a group that began at or before it. Locks nothing.
-- ahead: of what is not done, what stands between where the lane goes on and the message; 0 of what is done.
-- The ranges of times of a lane, and those that have expired, are disjoint unless it was moved back: a few around the offset are
-- looked at, and of the times the newest is taken. What steps have acknowledged counts from the epoch of the newest commit on, and is
-- disjoint within an epoch: one row per epoch says whether a message is among it.
SELECT
    m.place::integer AS place, g.name AS group_name, done.is_done, t.delivered_at, t.acked_at, d.dead_letter_id,
    EXISTS (
        SELECT FROM laneway.parked_message pm
        WHERE pm.group_id = l.group_id AND pm.partition_id = l.partition_id AND pm."offset" = m."offset"
    ) AS is_parked,
    CASE WHEN done.is_done THEN 0 ELSE m."offset" - placed.goes_on_at - (
        SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint
        FROM unnest(
            (coalesce(c.acked, '{}') + coalesce(beyond.acked, '{}'))
            * int8multirange(int8range(placed.goes_on_at, m."offset"))
        ) AS r
    ) END AS ahead,
    coalesce(a.attempts, 0) AS attempts,
    coalesce(f.failures, '[]') AS failures
FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS m (partition_id, "offset", place)
JOIN laneway.partition p USING (partition_id)
JOIN laneway.lane l USING (partition_id)
JOIN laneway.consumer_group g USING (group_id)
LEFT JOIN LATERAL (
    SELECT lc.epoch, lc.committed_offset, lc.acked
    FROM laneway.lane_commit lc
    WHERE lc.group_id = l.group_id AND lc.partition_id = l.partition_id
    ORDER BY lc.epoch DESC, lc.number DESC
    LIMIT 1
) c ON true
CROSS JOIN LATERAL (
    WITH RECURSIVE known AS (
        (
            SELECT s.epoch
            FROM laneway.step_ack s
            WHERE s.group_id = l.group_id AND s.partition_id = l.partition_id AND s.epoch >= coalesce(c.epoch, 0)
            ORDER BY s.epoch
            LIMIT 1
        )
        UNION ALL
        SELECT later.epoch
        FROM known
        CROSS JOIN LATERAL (
            SELECT s.epoch
            FROM laneway.step_ack s
            WHERE s.group_id = l.group_id AND s.partition_id = l.partition_id AND s.epoch > known.epoch
            ORDER BY s.epoch
            LIMIT 1
        ) later
    )
    SELECT array_agg(known.epoch) AS epochs FROM known
) steps
CROSS JOIN LATERAL (
    SELECT
        m."offset" < coalesce(c.committed_offset, l.first_offset)
        OR coalesce(c.acked @> m."offset", false)
        OR EXISTS (
            SELECT
            FROM unnest(steps.epochs) AS e (epoch)
            CROSS JOIN LATERAL (
                SELECT s.to_offset
                FROM laneway.step_ack s
                WHERE s.group_id = l.group_id AND s.partition_id = l.partition_id AND s.epoch = e.epoch
                  AND s.from_offset <= m."offset"
                ORDER BY s.from_offset DESC
                LIMIT 1
            ) near
            WHERE near.to_offset > m."offset"
        ) AS is_done
) done
CROSS JOIN LATERAL (
    SELECT least(greatest(coalesce(c.committed_offset, l.first_offset), p.start_offset), m."offset") AS goes_on_at
) placed
LEFT JOIN LATERAL (
    SELECT range_agg(int8range(reached.from_offset, reached.to_offset)) AS acked
    FROM unnest(steps.epochs) AS e (epoch)
    CROSS JOIN LATERAL (
        SELECT s.from_offset, s.to_offset
        FROM laneway.step_ack s
        WHERE s.group_id = l.group_id AND s.partition_id = l.partition_id AND s.epoch = e.epoch
          AND s.from_offset >= placed.goes_on_at AND s.from_offset < m."offset"
        UNION ALL
        (
            SELECT s.from_offset, s.to_offset
            FROM laneway.step_ack s
            WHERE s.group_id = l.group_id AND s.partition_id = l.partition_id AND s.epoch = e.epoch
              AND s.from_offset < placed.goes_on_at
            ORDER BY s.from_offset DESC
            LIMIT 1
        )
    ) reached
) beyond ON NOT done.is_done
LEFT JOIN LATERAL (
    SELECT near.delivered_at, near.acked_at
    FROM (
        SELECT lt.delivered_at, lt.acked_at, lt.end_offset
        FROM laneway.lane_time lt
        WHERE lt.group_id = l.group_id AND lt.partition_id = l.partition_id AND lt.first_offset <= m."offset"
        ORDER BY lt.first_offset DESC
        LIMIT 16
    ) near
    WHERE near.end_offset > m."offset"
    ORDER BY near.acked_at DESC
    LIMIT 1
) t ON true
LEFT JOIN laneway.attempt a
    ON a.group_id = l.group_id AND a.partition_id = l.partition_id AND a."offset" = m."offset"
LEFT JOIN laneway.dead_letter d
    ON d.partition_id = l.partition_id AND d."offset" = m."offset" AND d.group_name = g.name
LEFT JOIN LATERAL (
    SELECT json_agg(json_build_object(
        'attempt', tried.attempt, 'outcome', tried.outcome, 'reason', tried.reason,
        'delivered_us', (extract(epoch FROM tried.delivered_at) * 1000000)::bigint,
        'failed_us', (extract(epoch FROM tried.failed_at) * 1000000)::bigint
    ) ORDER BY tried.failed_at, tried.attempt)::text AS failures
    FROM (
        SELECT one.attempt, one.outcome, one.reason, one.delivered_at, one.failed_at
        FROM laneway.failure one
        WHERE one.group_id = l.group_id AND one.partition_id = l.partition_id AND one."offset" = m."offset"
          AND one.end_offset IS NULL
        UNION ALL
        SELECT near.attempt, near.outcome, near.reason, near.delivered_at, near.failed_at
        FROM (
            SELECT expired.*
            FROM laneway.failure expired
            WHERE expired.group_id = l.group_id AND expired.partition_id = l.partition_id
              AND expired."offset" <= m."offset" AND expired.end_offset IS NOT NULL
            ORDER BY expired."offset" DESC
            LIMIT 16
        ) near
        WHERE near.end_offset > m."offset"
    ) tried
) f ON true
WHERE least(l.first_offset, coalesce(c.committed_offset, l.first_offset)) <= m."offset"
   OR d.dead_letter_id IS NOT NULL
ORDER BY m.place, g.name
