-- When groups deliver: delays, windows, and what becomes of messages that are too old.

ALTER TABLE laneway.consumer_group
    ADD COLUMN delay_ms bigint NOT NULL DEFAULT 0 CHECK (delay_ms >= 0),
    ADD COLUMN window_ms bigint NOT NULL DEFAULT 0 CHECK (window_ms >= 0),
    ADD COLUMN window_max_ms bigint NOT NULL DEFAULT 0 CHECK (window_max_ms >= 0),
    ADD COLUMN max_age_ms bigint NOT NULL DEFAULT 0 CHECK (max_age_ms >= 0),
    ADD COLUMN on_expiry text COLLATE "C" NOT NULL DEFAULT 'evict' CHECK (on_expiry IN ('evict', 'dead_letter'));
COMMENT ON COLUMN laneway.consumer_group.delay_ms IS 'Messages are delivered when they are at least so old.';
COMMENT ON COLUMN laneway.consumer_group.window_ms IS 'A partition is delivered when it has been quiet for so long; 0: at once.';
COMMENT ON COLUMN laneway.consumer_group.window_max_ms IS 'No message waits longer for that; 0: ten times window_ms.';
COMMENT ON COLUMN laneway.consumer_group.max_age_ms IS 'Older messages are not delivered; 0: whatever their age.';
COMMENT ON COLUMN laneway.consumer_group.on_expiry IS 'What becomes of messages that are too old for the group or for themselves.';

-- A nullable column without a default: no row and no page of any segment is written.
ALTER TABLE laneway.message ADD COLUMN ttl_ms bigint;
COMMENT ON COLUMN laneway.message.ttl_ms IS 'How long after its publish it is worth delivering; null: for ever.';

-- Ranges: a million messages that have expired are one row.
ALTER TABLE laneway.failure
    ADD COLUMN end_offset bigint,
    DROP CONSTRAINT failure_attempt_check,
    DROP CONSTRAINT failure_outcome_check,
    ADD CONSTRAINT failure_attempt_check CHECK (attempt >= 0),
    ADD CONSTRAINT failure_outcome_check CHECK (outcome IN ('retry', 'dead_letter', 'skip', 'evicted')),
    ADD CONSTRAINT failure_range_check CHECK (end_offset > "offset");
COMMENT ON COLUMN laneway.failure.end_offset IS 'All messages up to here, not included, have expired together; null: one attempt at one message.';
CREATE INDEX failure_range ON laneway.failure (group_id, partition_id, "offset") WHERE end_offset IS NOT NULL;
