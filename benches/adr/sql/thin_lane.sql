-- Lane by lane, newest first found by index: a plan for all lanes at once goes wrong on fresh tables.
DO $$
DECLARE
    lane_id bigint;
    newest record;
BEGIN
    FOR lane_id IN SELECT partition_id FROM lane WHERE group_id = 1 LOOP
        SELECT epoch, committed_at INTO newest FROM lane_commit WHERE group_id = 1 AND partition_id = lane_id
        ORDER BY epoch DESC, committed_at DESC LIMIT 1;
        DELETE FROM lane_commit WHERE group_id = 1 AND partition_id = lane_id
            AND (epoch, committed_at) < (newest.epoch, newest.committed_at);
    END LOOP;
END $$;
\sleep 2 s
