-- steps_insert: writes down the steps of a flush, what they acknowledge and when, unless steps_check has closed it.
-- steps:    $1 step_id uuid[], $2 digest bytea[]
-- messages: $3 step integer[], $4 partition integer[] (its number), $5 batch integer[] (of messages_append; 0: stored before;
--           below 0: a unit of schedules_insert, negated), $6 place bigint[] (in the batch or unit; of one stored before, its offset)
-- batches:  $7 partition_id bigint[], $8 messages integer[]
-- acks:     $9 group_id bigint[], $10 partition_id bigint[], $11 epoch bigint[], $12 from_offset bigint[], $13 to_offset bigint[]
-- times:    $14 group_id bigint[], $15 partition_id bigint[], $16 first_offset bigint[], $17 end_offset bigint[],
--           $18 delivered_us bigint[], $19 acked_us bigint[] (how long ago, when the transaction was begun)
-- A message that waits stands at its schedule_id, negated.
-- Order: after messages_append, whose heads tell where the batches begin, and schedules_insert, which leaves its ids in
-- laneway.scheduled_<unit>.
WITH base AS MATERIALIZED (
    SELECT array_agg(h.next_offset - b.messages ORDER BY b.batch) AS first_offsets
    FROM unnest($7::bigint[], $8::integer[]) WITH ORDINALITY AS b (partition_id, messages, batch)
    LEFT JOIN LATERAL (
        SELECT head.next_offset
        FROM laneway.head
        WHERE head.partition_id = b.partition_id
        ORDER BY head.published_at DESC, head.next_offset DESC
        LIMIT 1
    ) h ON true
),
placed AS (
    SELECT
        m.step,
        array_agg(m.partition ORDER BY m.number) AS partitions,
        array_agg(
            CASE
                WHEN m.batch > 0 THEN m.place + (SELECT first_offsets FROM base)[m.batch]
                WHEN m.batch < 0
                THEN (string_to_array(current_setting('laneway.scheduled_' || -m.batch, true), ','))[m.place + 1]::bigint
                ELSE m.place
            END
            ORDER BY m.number
        ) AS offsets
    FROM unnest($3::integer[], $4::integer[], $5::integer[], $6::bigint[]) WITH ORDINALITY
        AS m (step, partition, batch, place, number)
    GROUP BY m.step
),
done AS (
    INSERT INTO laneway.step (step_id, digest, partitions, offsets)
    SELECT s.step_id, s.digest, coalesce(placed.partitions, '{}'), coalesce(placed.offsets, '{}')
    FROM unnest($1::uuid[], $2::bytea[]) WITH ORDINALITY AS s (step_id, digest, step)
    LEFT JOIN placed ON placed.step = s.step
    WHERE coalesce(current_setting('laneway.refused', true), '') = ''
),
times AS (
    INSERT INTO laneway.lane_time (group_id, partition_id, first_offset, end_offset, delivered_at, acked_at)
    SELECT
        t.group_id, t.partition_id, t.first_offset, t.end_offset,
        now() - t.delivered_us * interval '1 microsecond', now() - t.acked_us * interval '1 microsecond'
    FROM unnest($14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[])
        AS t (group_id, partition_id, first_offset, end_offset, delivered_us, acked_us)
    WHERE coalesce(current_setting('laneway.refused', true), '') = ''
)
INSERT INTO laneway.step_ack (group_id, partition_id, epoch, from_offset, to_offset)
SELECT *
FROM unnest($9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])
WHERE coalesce(current_setting('laneway.refused', true), '') = ''
ON CONFLICT DO NOTHING
