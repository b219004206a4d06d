-- Topics and their partitions.
-- Everything lives in the schema `laneway`, so that the bus can share a database with the tables a team already has.

CREATE TABLE laneway.topic (
    topic_id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name               text COLLATE "C" NOT NULL UNIQUE CHECK (name ~ '^[a-zA-Z0-9._-]{1,249}$'),
    payload_bytes_max  integer NOT NULL CHECK (payload_bytes_max > 0),
    segment_messages   integer NOT NULL CHECK (segment_messages > 0),
    retention_age_ms   bigint CHECK (retention_age_ms > 0),
    retention_bytes    bigint CHECK (retention_bytes > 0),
    dedup_window_ms    bigint NOT NULL CHECK (dedup_window_ms > 0),
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE laneway.topic IS 'A named stream of messages, split into partitions.';
COMMENT ON COLUMN laneway.topic.retention_age_ms IS 'Whole segments older than this are dropped; null keeps them for ever.';
COMMENT ON COLUMN laneway.topic.retention_bytes IS 'The oldest segments are dropped while the topic stores more than this; null keeps them.';

-- Invariant: a flush locks this row and never updates it. Only retention moves its start, once per dropped segment,
-- so that a foreign snapshot cannot pile up versions of it.
CREATE TABLE laneway.partition (
    partition_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic_id           bigint NOT NULL REFERENCES laneway.topic,
    number             integer NOT NULL CHECK (number >= 0),
    start_offset       bigint NOT NULL DEFAULT 0 CHECK (start_offset >= 0),
    start_bytes_total  bigint NOT NULL DEFAULT 0 CHECK (start_bytes_total >= 0),
    UNIQUE (topic_id, number)
) WITH (fillfactor = 50, vacuum_truncate = off);
COMMENT ON TABLE laneway.partition IS 'An ordered part of a topic: the unit of order and of locking.';
COMMENT ON COLUMN laneway.partition.start_bytes_total IS 'Bytes of the messages below start_offset: what retention has dropped.';
