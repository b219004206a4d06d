-- steps_check: whether all steps of a flush may happen, seen with a snapshot that is younger than the locks.
-- steps:      $1 step_id uuid[]
-- lanes:      $2 step integer[], $3 place integer[] (in the arrays of steps_lock_lanes)
-- partitions: $4 step integer[], $5 partition_id bigint[]
-- ids:        $6 message integer[], $7 partition_id bigint[], $8 transaction_id text[], $9 window_ms bigint[]
-- times:      $10 message integer[], $11 deliver_at timestamptz[], $12 past_ms bigint, $13 ahead_ms bigint
-- Steps, places and messages count from 1.
-- Rows: 'known' (was done before, with its result), 'lost' (a lane has another holder or epoch) and 'gone' (a partition is
-- deleted) per step; 'repeated' per message whose transaction id has an older copy; 'past' and 'far' per message whose time is
-- too long ago, or too far ahead.
-- Any row closes the flush: messages_append and steps_insert of the same transaction then write nothing, and the steps that
-- are not named come again without the others. Sorted, so that every verdict is found before the first row closes the flush:
-- a verdict that is looked for afterwards would find its partition not locked.
WITH verdict AS (
    SELECT 'known' AS kind, s.step::integer AS place, k.digest, k.partitions, k.offsets
    FROM unnest($1::uuid[]) WITH ORDINALITY AS s (step_id, step)
    JOIN laneway.step k USING (step_id)
    UNION ALL
    SELECT DISTINCT 'lost', l.step, NULL::bytea, NULL::integer[], NULL::bigint[]
    FROM unnest($2::integer[], $3::integer[]) AS l (step, place)
    WHERE l.place <> ALL ((SELECT string_to_array(current_setting('laneway.held'), ','))::integer[])
    UNION ALL
    SELECT DISTINCT 'gone', p.step, NULL::bytea, NULL::integer[], NULL::bigint[]
    FROM unnest($4::integer[], $5::bigint[]) AS p (step, partition_id)
    WHERE p.partition_id <> ALL ((SELECT string_to_array(current_setting('laneway.locked', true), ','))::bigint[])
    UNION ALL
    SELECT 'repeated', i.message, NULL::bytea, NULL::integer[], ARRAY[seen."offset"]
    FROM unnest($6::integer[], $7::bigint[], $8::text[], $9::bigint[]) AS i (message, partition_id, transaction_id, window_ms)
    JOIN LATERAL (
        SELECT t."offset"
        FROM laneway.transaction_seen t
        WHERE t.partition_id = i.partition_id
          AND t.transaction_id = i.transaction_id COLLATE "C"
          AND t.published_at > clock_timestamp() - make_interval(secs => i.window_ms / 1000.0)
        ORDER BY t."offset" DESC
        LIMIT 1
    ) seen ON true
    UNION ALL
    SELECT
        CASE WHEN d.deliver_at < clock_timestamp() THEN 'past' ELSE 'far' END, d.message, NULL::bytea, NULL::integer[],
        NULL::bigint[]
    FROM unnest($10::integer[], $11::timestamptz[]) AS d (message, deliver_at)
    WHERE d.deliver_at < clock_timestamp() - $12::bigint * interval '1 millisecond'
       OR d.deliver_at > clock_timestamp() + $13::bigint * interval '1 millisecond'
)
SELECT
    kind, place, digest, partitions, offsets,
    set_config('laneway.locked', '', true) AS locked, set_config('laneway.refused', 'yes', true) AS refused
FROM (SELECT * FROM verdict ORDER BY kind, place) AS found
