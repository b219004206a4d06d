-- segments_detached: remembers that a retired segment's table was detached in the same transaction.
-- $1 segment_id bigint
-- Count 0: another broker was faster.
UPDATE laneway.segment SET state = 'detached' WHERE segment_id = $1 AND state = 'retired'
