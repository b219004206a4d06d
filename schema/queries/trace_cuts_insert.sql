-- trace_cuts_insert: enters a cut into the catalogue; its table is made in the same transaction.
-- $1 from_us bigint, $2 to_us bigint (microseconds since 1970)
-- One row: the id that names its table.
INSERT INTO laneway.trace_cut (from_at, to_at)
VALUES (
    'epoch'::timestamptz + $1 * interval '1 microsecond',
    'epoch'::timestamptz + $2 * interval '1 microsecond'
)
RETURNING cut_id
