-- The table of the limit: what one plain PostgreSQL table needs to hold the same messages, and nothing else.
-- Frozen: every ratio that Laneway reports is to this. {number}: one table per connection.
DROP TABLE IF EXISTS laneway_limit_{number};
CREATE TABLE laneway_limit_{number} (
    "offset"      bigint PRIMARY KEY,
    trace_id      uuid,
    key           bytea,
    published_at  timestamptz,
    payload       bytea
);
