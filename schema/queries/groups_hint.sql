-- groups_hint: tells all brokers that members or lanes of groups have changed. A hint, sent at commit.
-- $1 group_ids bigint[]
SELECT pg_notify('laneway', 'group:' || g) FROM unnest($1::bigint[]) AS g
