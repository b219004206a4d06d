-- permissions_examine: what the role of this connection may do here, as far as a broker needs it.
-- Always one row. Locks nothing.
SELECT
    current_user::text AS role,
    d.datname::text AS database,
    has_database_privilege(d.oid, 'CREATE') AS may_create,
    n.oid IS NOT NULL AS has_schema,
    coalesce(pg_has_role(n.nspowner, 'USAGE'), true) AS owns_schema,
    coalesce(has_schema_privilege(n.oid, 'USAGE'), true) AS may_enter,
    (
        SELECT count(*)
        FROM pg_class c
        WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p', 'v') AND NOT pg_has_role(c.relowner, 'USAGE')
    ) AS foreign_tables,
    least(nullif(d.datconnlimit, -1), nullif(r.rolconnlimit, -1))::bigint AS connection_limit
FROM pg_database d
CROSS JOIN pg_roles r
LEFT JOIN pg_namespace n ON n.nspname = 'laneway'
WHERE d.datname = current_database() AND r.rolname = current_user
