-- What traces are read from: when messages were delivered and done, which attempts failed, and which traces name each other.

ALTER TABLE laneway.topic ADD COLUMN delivery_times boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN laneway.topic.delivery_times IS 'Whether it is kept when its messages were delivered and done.';

-- Insert-only, a row per range of messages that were delivered together and done together, never a row per message. No index
-- by time: retention walks the table page by page (docs/adr/0006-delivery-times.md).
CREATE TABLE laneway.lane_time (
    group_id      bigint NOT NULL,
    partition_id  bigint NOT NULL,
    first_offset  bigint NOT NULL CHECK (first_offset >= 0),
    end_offset    bigint NOT NULL CHECK (end_offset > first_offset),
    delivered_at  timestamptz NOT NULL,
    acked_at      timestamptz NOT NULL
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.lane_time IS 'When a range of a lane was delivered last, and when it was done; on the database clock, lost with a crash.';
CREATE INDEX lane_time_place ON laneway.lane_time (group_id, partition_id, first_offset);

-- Beside laneway.attempt, which knows only the last failure of what is not done yet.
CREATE TABLE laneway.failure (
    group_id      bigint NOT NULL,
    partition_id  bigint NOT NULL,
    "offset"      bigint NOT NULL CHECK ("offset" >= 0),
    attempt       integer NOT NULL CHECK (attempt > 0),
    outcome       text COLLATE "C" NOT NULL CHECK (outcome IN ('retry', 'dead_letter', 'skip')),
    reason        text COLLATE "C" NOT NULL,
    delivered_at  timestamptz,
    failed_at     timestamptz NOT NULL
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.failure IS 'An attempt at a message that has failed, and what followed: it comes again, or the group has given it up.';
CREATE INDEX failure_place ON laneway.failure (group_id, partition_id, "offset", attempt);

CREATE TABLE laneway.trace_link (
    linked_trace_id  uuid NOT NULL,
    trace_id         uuid NOT NULL,
    partition_id     bigint NOT NULL,
    "offset"         bigint NOT NULL,
    PRIMARY KEY (linked_trace_id, trace_id, partition_id, "offset")
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.trace_link IS 'A message of a trace has named another trace.';
CREATE INDEX trace_link_trace_id ON laneway.trace_link (trace_id);
CREATE INDEX trace_link_partition_id ON laneway.trace_link (partition_id, "offset");
