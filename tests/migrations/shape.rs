//! `schema/schema.sql` is today's shape: what the migrations make of an empty database, catalogue entry by entry.

use crate::harness::TestDatabase;

/// What makes up a schema, each as lines of text. Names, not ids: two databases are compared.
const CATALOGUES: &[(&str, &str)] = &[
    (
        "table",
        "SELECT format('%s kind=%s persistence=%s options=%s key=%s access=%s comment=%s', c.relname, c.relkind,
            c.relpersistence, c.reloptions, pg_get_partkeydef(c.oid), c.relacl, obj_description(c.oid, 'pg_class'))
         FROM pg_class c WHERE c.relnamespace = 'laneway'::regnamespace",
    ),
    (
        "column",
        "SELECT format('%s.%s %s type=%s null=%s identity=%s generated=%s default=%s storage=%s compression=%s collation=%s
                options=%s comment=%s',
            c.relname, a.attname, a.attnum, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, a.attidentity,
            a.attgenerated, pg_get_expr(d.adbin, d.adrelid), a.attstorage, a.attcompression, l.collname, a.attoptions,
            col_description(c.oid, a.attnum))
         FROM pg_attribute a
         JOIN pg_class c ON c.oid = a.attrelid
         LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
         LEFT JOIN pg_collation l ON l.oid = a.attcollation
         WHERE c.relnamespace = 'laneway'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped",
    ),
    (
        "constraint",
        "SELECT format('%s %s %s validated=%s deferrable=%s comment=%s', conrelid::regclass, conname,
            pg_get_constraintdef(oid), convalidated, condeferrable, obj_description(oid, 'pg_constraint'))
         FROM pg_constraint WHERE connamespace = 'laneway'::regnamespace",
    ),
    (
        "index",
        "SELECT format('%s valid=%s unique=%s primary=%s', pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisunique,
            i.indisprimary)
         FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = 'laneway'::regnamespace",
    ),
    (
        "sequence",
        "SELECT format('%s %s', s.seqrelid::regclass, row(s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmax, s.seqmin,
            s.seqcache, s.seqcycle))
         FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid WHERE c.relnamespace = 'laneway'::regnamespace",
    ),
    (
        "enum",
        "SELECT format('%s = %s', t.typname, string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder))
         FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid
         WHERE t.typnamespace = 'laneway'::regnamespace GROUP BY t.typname",
    ),
    (
        "partition",
        "SELECT format('%s below %s', inhrelid::regclass, inhparent::regclass)
         FROM pg_inherits JOIN pg_class c ON c.oid = inhparent WHERE c.relnamespace = 'laneway'::regnamespace",
    ),
    (
        "function",
        "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'laneway'::regnamespace AND prokind = 'f'",
    ),
    (
        "trigger",
        "SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
         WHERE c.relnamespace = 'laneway'::regnamespace AND NOT t.tgisinternal",
    ),
    (
        "view",
        "SELECT format('%s = %s', c.relname, pg_get_viewdef(c.oid)) FROM pg_class c
         WHERE c.relnamespace = 'laneway'::regnamespace AND c.relkind IN ('v', 'm')",
    ),
    (
        "schema",
        "SELECT format('%s access=%s comment=%s', nspname, nspacl, obj_description(oid, 'pg_namespace'))
         FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)'",
    ),
    ("extension", "SELECT extname::text FROM pg_extension"),
];

/// The shape of the schema as sorted lines.
pub async fn lines(raw: &tokio_postgres::Client) -> Vec<String> {
    let mut lines = Vec::new();
    for (kind, sql) in CATALOGUES {
        let rows = raw.query(*sql, &[]).await.unwrap();
        lines.extend(rows.iter().map(|row| format!("{kind}: {}", row.get::<_, String>(0))));
    }
    lines.sort();
    lines
}

fn written() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/schema/schema.sql")).unwrap()
}

/// What stands only in the first.
fn only_in<'a>(these: &'a [String], those: &[String]) -> Vec<&'a String> {
    these.iter().filter(|line| !those.contains(line)).collect()
}

#[tokio::test]
async fn schema_sql_is_what_the_migrations_make_of_an_empty_database() {
    let (migrated, read) = (TestDatabase::empty().await, TestDatabase::empty().await);
    migrated.store().migrate().await.unwrap();
    read.raw().await.batch_execute(&written()).await.unwrap();
    let (migrated, read) = (lines(&migrated.raw().await).await, lines(&read.raw().await).await);
    assert!(migrated.len() > 50, "the catalogue was read");
    assert_eq!(
        (only_in(&migrated, &read), only_in(&read, &migrated)),
        (vec![], vec![]),
        "left: only the migrations make it; right: only schema.sql says it"
    );
    assert_eq!(migrated, read);
}

/// A comparison that sees no difference proves nothing: every kind of change must show.
#[tokio::test]
async fn a_difference_of_any_kind_is_seen() {
    let changes = [
        "ALTER TABLE laneway.head RESET (vacuum_truncate)",
        "ALTER TABLE laneway.partition SET (fillfactor = 60)",
        "ALTER TABLE laneway.topic ALTER COLUMN retention_bytes SET NOT NULL",
        "ALTER TABLE laneway.topic ALTER COLUMN payload_bytes_max TYPE bigint",
        "ALTER TABLE laneway.partition ALTER COLUMN start_offset DROP DEFAULT",
        "ALTER TABLE laneway.trace_block ALTER COLUMN traces SET STORAGE EXTENDED",
        "ALTER TABLE laneway.message ALTER COLUMN headers TYPE text COLLATE \"default\"",
        "ALTER TABLE laneway.segment DROP CONSTRAINT segment_check",
        "ALTER TABLE laneway.segment DROP CONSTRAINT segment_partition_id_fkey",
        "DROP INDEX laneway.transaction_seen_published_at",
        "ALTER TYPE laneway.segment_state ADD VALUE 'lost'",
        "COMMENT ON COLUMN laneway.head.bytes_total IS 'something else'",
        "COMMENT ON TABLE laneway.topic IS NULL",
        "ALTER SEQUENCE laneway.topic_topic_id_seq CACHE 10",
        "GRANT SELECT ON laneway.topic TO PUBLIC",
        "CREATE VIEW laneway.v AS SELECT 1 AS n",
    ];
    let database = TestDatabase::new().await;
    let mut before = lines(&database.raw().await).await;
    for change in changes {
        database.raw().await.batch_execute(change).await.unwrap();
        let after = lines(&database.raw().await).await;
        assert_ne!(before, after, "{change}");
        before = after;
    }
}
