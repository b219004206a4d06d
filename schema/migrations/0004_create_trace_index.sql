-- The trace index: which flush holds messages of which trace. Why blocks under one GIN index, and not an entry per
-- message in every segment: docs/adr/0003-trace-index.md.

-- One row per partition and flush. Cut by time, so that what retention has left behind goes by dropping tables.
CREATE TABLE laneway.trace_block (
    partition_id  bigint NOT NULL,
    first_offset  bigint NOT NULL,
    messages      integer NOT NULL,
    published_at  timestamptz NOT NULL,
    traces        bigint[] NOT NULL
) PARTITION BY RANGE (published_at);
-- Long arrays go out of line as they are: compressing random numbers costs time and saves nothing.
ALTER TABLE laneway.trace_block ALTER COLUMN traces SET STORAGE EXTERNAL;
COMMENT ON COLUMN laneway.trace_block.traces IS 'The first 64 bits of each trace id in the block, once each.';

CREATE TABLE laneway.trace_cut (
    cut_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    from_at     timestamptz NOT NULL UNIQUE,
    to_at       timestamptz NOT NULL CHECK (to_at > from_at),
    closed_at   timestamptz,
    checked_at  timestamptz
);
COMMENT ON TABLE laneway.trace_cut IS 'The catalogue of the cuts: trace_block_c<cut_id> holds the blocks of [from_at, to_at).';
COMMENT ON COLUMN laneway.trace_cut.closed_at IS 'When it was frozen: it takes no more blocks.';
COMMENT ON COLUMN laneway.trace_cut.checked_at IS 'When it was last seen how many of its blocks still have messages.';
