-- Topics have labels, which subscriptions can match; topics that change can be found by when they did; and a session may
-- select topics instead of naming one.

ALTER TABLE laneway.topic
    ADD COLUMN labels jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN changed_at timestamptz NOT NULL DEFAULT clock_timestamp();
COMMENT ON COLUMN laneway.topic.labels IS 'Words by name, such as namespace and task.';
COMMENT ON COLUMN laneway.topic.changed_at IS 'When it was made, labelled or deleted: brokers that serve selections read what is new.';
CREATE INDEX topic_changed_at ON laneway.topic (changed_at);

CREATE TABLE laneway.selection (
    session_id  uuid NOT NULL REFERENCES laneway.session ON DELETE CASCADE,
    number      bigint NOT NULL,
    terms       text NOT NULL,
    PRIMARY KEY (session_id, number)
);
COMMENT ON TABLE laneway.selection IS 'A subscription of a session that selects its topics.';
COMMENT ON COLUMN laneway.selection.terms IS 'What it selects and subscribes with as JSON: a broker that it resumes on needs it.';
