-- segments_frozen: remembers that a sealed segment has been frozen.
-- $1 segment_id bigint
UPDATE laneway.segment SET frozen_at = clock_timestamp() WHERE segment_id = $1
