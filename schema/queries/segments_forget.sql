-- segments_forget: takes a segment out of the catalogue; its table was dropped in the same transaction.
-- $1 segment_id bigint
-- Count 0: another broker was faster.
DELETE FROM laneway.segment WHERE segment_id = $1 AND state = 'detached'
