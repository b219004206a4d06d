-- pops_find: lanes of pullers that have messages and that nobody has, with where they go on; the one whose first message has
-- waited longest first.
-- $1 group_id bigint, $2 pullers uuid, $3 left_out bigint[] (partitions), $4 limit bigint
-- No row: there is nothing to pop now, or an operator has paused the group or the topic. Locks nothing: whoever takes one compares the epoch. The wait is that of the first head
-- beyond the committed offset, as in lanes_describe.
WITH free AS (
    SELECT
        l.partition_id, p.number, l.epoch, l.suspect_until, l.open_until_offset, p.start_offset, h.next_offset,
        coalesce(c.committed_offset, l.first_offset) AS committed_offset,
        coalesce(c.epoch, 0) AS commit_epoch, coalesce(c.number, 0) AS commit_number,
        (coalesce(c.acked, '{}') + coalesce(s.acked, '{}'))::text AS acked
    FROM laneway.lane l
    JOIN laneway.consumer_group g USING (group_id)
    JOIN laneway.partition p ON p.partition_id = l.partition_id
    LEFT JOIN LATERAL (
        SELECT lc.epoch, lc.number, lc.committed_offset, lc.acked
        FROM laneway.lane_commit lc
        WHERE lc.group_id = l.group_id AND lc.partition_id = l.partition_id
        ORDER BY lc.epoch DESC, lc.number DESC
        LIMIT 1
    ) c ON true
    LEFT JOIN LATERAL (
        SELECT range_agg(int8range(sa.from_offset, sa.to_offset)) AS acked
        FROM laneway.step_ack sa
        WHERE sa.group_id = l.group_id AND sa.partition_id = l.partition_id AND sa.epoch >= coalesce(c.epoch, 0)
    ) s ON true
    JOIN LATERAL (
        SELECT head.next_offset
        FROM laneway.head
        WHERE head.partition_id = l.partition_id
        ORDER BY head.published_at DESC, head.next_offset DESC
        LIMIT 1
    ) h ON h.next_offset > greatest(coalesce(c.committed_offset, l.first_offset), p.start_offset)
    WHERE l.group_id = $1 AND l.wanted_session = $2 AND l.session_id IS NULL AND l.popped_until_at IS NULL
      AND l.partition_id <> ALL ($3) AND g.paused_at IS NULL AND p.paused_at IS NULL
      AND NOT EXISTS (
          SELECT FROM laneway.attempt a
          WHERE a.group_id = l.group_id AND a.partition_id = l.partition_id
            AND a."offset" = greatest(coalesce(c.committed_offset, l.first_offset), p.start_offset)
            AND (a.retry_at > clock_timestamp() OR (g.on_failure = 'block' AND a.attempts >= g.max_attempts))
      )
)
SELECT f.*
FROM free f
LEFT JOIN LATERAL (
    SELECT head.published_at, head.next_offset
    FROM laneway.head
    WHERE head.partition_id = f.partition_id AND head.next_offset <= f.committed_offset
    ORDER BY head.published_at DESC, head.next_offset DESC
    LIMIT 1
) done ON true
LEFT JOIN LATERAL (
    SELECT head.published_at
    FROM laneway.head
    WHERE head.partition_id = f.partition_id
      AND (head.published_at, head.next_offset) > (coalesce(done.published_at, '-infinity'), coalesce(done.next_offset, 0))
    ORDER BY head.published_at, head.next_offset
    LIMIT 1
) waiting ON true
ORDER BY waiting.published_at, f.partition_id
LIMIT $4
