-- lanes_release: the holder lets a lane go. Its row is locked and fenced by the transaction.
-- $1 group_id bigint, $2 partition_id bigint, $3 suspect_until bigint, $4 avoided_session uuid (null: nobody)
UPDATE laneway.lane
SET session_id = NULL, broker_id = NULL, drain_until_at = NULL,
    suspect_until = greatest(suspect_until, $3),
    avoided_session = coalesce($4, avoided_session),
    wanted_session = CASE WHEN wanted_session = $4 THEN NULL ELSE wanted_session END
WHERE group_id = $1 AND partition_id = $2
