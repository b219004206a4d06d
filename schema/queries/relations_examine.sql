-- relations_examine: the tables and views of the schema: by name those that are no part of another, by number all tables.
-- Always one row. Locks nothing.
SELECT
    coalesce(array_agg(c.relname::text) FILTER (WHERE NOT c.relispartition), '{}') AS names,
    count(*) FILTER (WHERE c.relkind IN ('r', 'p')) AS tables
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'laneway' AND c.relkind IN ('r', 'p', 'v')
