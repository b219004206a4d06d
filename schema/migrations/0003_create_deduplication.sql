-- What has been published already, for as long as the window of a topic remembers it.

CREATE TABLE laneway.producer_run (
    partition_id    bigint NOT NULL,
    producer_id     uuid NOT NULL,
    first_sequence  bigint NOT NULL,
    last_sequence   bigint NOT NULL,
    first_offset    bigint NOT NULL,
    published_at    timestamptz NOT NULL,
    PRIMARY KEY (partition_id, producer_id, last_sequence)
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.producer_run IS 'A run of messages of one producer, numbered without a gap and stored without a gap.';
CREATE INDEX producer_run_published_at ON laneway.producer_run (published_at);

CREATE TABLE laneway.transaction_seen (
    partition_id    bigint NOT NULL,
    transaction_id  text COLLATE "C" NOT NULL,
    "offset"        bigint NOT NULL,
    published_at    timestamptz NOT NULL,
    PRIMARY KEY (partition_id, transaction_id, "offset")
) WITH (vacuum_truncate = off);
COMMENT ON TABLE laneway.transaction_seen IS 'Transaction ids and the message that each of them named first within the window.';
CREATE INDEX transaction_seen_published_at ON laneway.transaction_seen (published_at);
