-- Steps of pipelines: acks and publishes in one transaction, known by the id that the client gave them. And sessions that have
-- lost their connection.

ALTER TABLE laneway.session ADD COLUMN away_until_at timestamptz;
COMMENT ON COLUMN laneway.session.away_until_at IS 'Its connection is lost, and its client may come back until then: it keeps its lanes and gets no others.';

CREATE TABLE laneway.step (
    step_id     uuid PRIMARY KEY,
    digest      bytea NOT NULL,
    partitions  integer[] NOT NULL,
    offsets     bigint[] NOT NULL,
    done_at     timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.step IS 'A step that is done, for as long as its client may ask again: what it published and where.';
COMMENT ON COLUMN laneway.step.digest IS 'SHA-256 of what the step did: the same id with other content is refused.';
COMMENT ON COLUMN laneway.step.partitions IS 'The number of the partition of each message, in the order of the step.';
COMMENT ON COLUMN laneway.step.offsets IS 'The offset of each message there.';
CREATE INDEX step_done_at ON laneway.step (done_at);

CREATE TABLE laneway.step_ack (
    group_id      bigint NOT NULL,
    partition_id  bigint NOT NULL,
    epoch         bigint NOT NULL,
    from_offset   bigint NOT NULL CHECK (from_offset >= 0),
    to_offset     bigint NOT NULL CHECK (to_offset > from_offset),
    acked_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (group_id, partition_id, epoch, from_offset, to_offset)
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.step_ack IS 'What steps have acknowledged of a lane; counts beside its newest commit unless that is of a later epoch.';
CREATE INDEX step_ack_acked_at ON laneway.step_ack (acked_at);
