-- Messages, the catalogue of the segments that hold them, and the heads that number them.

-- Invariant: only inserts go through this parent. Reads name one segment table, found in the catalogue.
-- Below it: one table per partition (message_p<partition_id>, LIST), below that one per segment
-- (message_s<segment_id>, RANGE by offset). Both are made lazily from schema/templates.
CREATE TABLE laneway.message (
    partition_id        bigint NOT NULL,
    "offset"            bigint NOT NULL,
    published_at        timestamptz NOT NULL,
    trace_id            uuid NOT NULL,
    cause_partition_id  bigint,
    cause_offset        bigint,
    key                 bytea,
    transaction_id      text COLLATE "C",
    headers             text COLLATE "C",
    content_type        text COLLATE "C",
    payload             bytea NOT NULL,
    producer            text COLLATE "C"
) PARTITION BY LIST (partition_id);
COMMENT ON COLUMN laneway.message.headers IS 'A JSON object of strings, kept as its text.';
COMMENT ON COLUMN laneway.message.producer IS 'The authenticated subject; null until there is authentication.';

CREATE TYPE laneway.segment_state AS ENUM ('attached', 'retired', 'detached');

CREATE TABLE laneway.segment (
    segment_id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition_id        bigint NOT NULL REFERENCES laneway.partition,
    first_offset        bigint NOT NULL CHECK (first_offset >= 0),
    end_offset          bigint NOT NULL,
    state               laneway.segment_state NOT NULL DEFAULT 'attached',
    bytes               bigint,
    end_bytes_total     bigint,
    first_published_at  timestamptz,
    last_published_at   timestamptz,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    sealed_at           timestamptz,
    frozen_at           timestamptz,
    CHECK (end_offset > first_offset),
    UNIQUE (partition_id, first_offset)
);
COMMENT ON TABLE laneway.segment IS 'Which table holds which offsets of a partition, from when to when, and how large it is.';
COMMENT ON COLUMN laneway.segment.state IS 'attached: takes inserts. retired: below start_offset, to be detached. detached: to be dropped.';
COMMENT ON COLUMN laneway.segment.end_bytes_total IS 'Once sealed: bytes of all messages ever published below end_offset.';
COMMENT ON COLUMN laneway.segment.sealed_at IS 'When it was seen full: its bytes and time range are final from here on.';

-- Each flush inserts one head per partition it wrote; the newest wins, older ones are thinned and serve as time index.
-- Why insert-only: docs/adr/0001-insert-only-heads.md.
CREATE TABLE laneway.head (
    partition_id  bigint NOT NULL,
    published_at  timestamptz NOT NULL,
    next_offset   bigint NOT NULL,
    bytes_total   bigint NOT NULL,
    PRIMARY KEY (partition_id, published_at, next_offset)
) WITH (vacuum_truncate = off);
COMMENT ON COLUMN laneway.head.bytes_total IS 'Bytes of all messages ever published to the partition, up to next_offset.';
