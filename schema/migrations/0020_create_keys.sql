-- Order by key: a group may be ordered by key instead of by partition, and park the keys whose messages fail.

ALTER TYPE laneway.failure_policy ADD VALUE 'park';

ALTER TABLE laneway.consumer_group
    ADD COLUMN ordering text COLLATE "C" NOT NULL DEFAULT 'partition' CHECK (ordering IN ('partition', 'key'));
COMMENT ON COLUMN laneway.consumer_group.ordering IS 'What keeps its order: all messages of a partition, or those of each key.';

ALTER TABLE laneway.failure
    DROP CONSTRAINT failure_outcome_check,
    ADD CONSTRAINT failure_outcome_check CHECK (outcome IN ('retry', 'dead_letter', 'skip', 'evicted', 'park', 'drop'));
COMMENT ON COLUMN laneway.failure.end_offset IS 'All messages up to here, not included, have expired or were parked together; null: one attempt at one message.';

-- Written by the holder of the lane under its fence, released by operators under the lock of the lane's row.
CREATE TABLE laneway.parked_key (
    parked_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id       bigint NOT NULL,
    partition_id   bigint NOT NULL,
    parked_offset  bigint NOT NULL CHECK (parked_offset >= 0),
    key            bytea,
    state          text COLLATE "C" NOT NULL CHECK (state IN ('parked', 'released')),
    messages       bigint NOT NULL CHECK (messages >= 0),
    parked_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (group_id, partition_id, parked_offset),
    FOREIGN KEY (group_id, partition_id) REFERENCES laneway.lane ON DELETE CASCADE
);
COMMENT ON TABLE laneway.parked_key IS 'A key of a lane whose messages are not delivered: one has failed for good, and the others stand behind it.';
COMMENT ON COLUMN laneway.parked_key.parked_offset IS 'The message that parked it: its name within the lane, also if it has no key.';
COMMENT ON COLUMN laneway.parked_key.state IS 'released: its messages are delivered again, in order; the row goes when none is left.';
COMMENT ON COLUMN laneway.parked_key.messages IS 'How many rows of laneway.parked_message it has.';

CREATE TABLE laneway.parked_message (
    group_id            bigint NOT NULL,
    partition_id        bigint NOT NULL,
    "offset"            bigint NOT NULL CHECK ("offset" >= 0),
    parked_offset       bigint NOT NULL,
    attempts            integer NOT NULL CHECK (attempts >= 0),
    reason              text COLLATE "C" NOT NULL,
    retry_at            timestamptz,
    parked_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    published_at        timestamptz NOT NULL,
    trace_id            uuid NOT NULL,
    cause_partition_id  bigint,
    cause_offset        bigint,
    key                 bytea,
    transaction_id      text COLLATE "C",
    headers             text COLLATE "C",
    content_type        text COLLATE "C",
    payload             bytea NOT NULL,
    producer            text COLLATE "C",
    PRIMARY KEY (group_id, partition_id, "offset"),
    FOREIGN KEY (group_id, partition_id, parked_offset)
        REFERENCES laneway.parked_key (group_id, partition_id, parked_offset) ON DELETE CASCADE
);
COMMENT ON TABLE laneway.parked_message IS 'A message of a parked key, whole, so that the lane and retention move on; written with the commit that moves past it.';
COMMENT ON COLUMN laneway.parked_message.attempts IS 'How often it has failed since it was released, or before it was parked; 0: it only stands behind another.';
COMMENT ON COLUMN laneway.parked_message.retry_at IS 'Not delivered again before, once it is released; null: at once.';
CREATE INDEX parked_message_line ON laneway.parked_message (group_id, partition_id, parked_offset, "offset");
