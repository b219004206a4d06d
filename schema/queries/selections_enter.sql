-- selections_enter: a session selects topics; a second time changes only its terms.
-- $1 session_id uuid, $2 number bigint, $3 terms text
-- Order: sessions_open before this one.
INSERT INTO laneway.selection (session_id, number, terms)
VALUES ($1, $2, $3)
ON CONFLICT (session_id, number) DO UPDATE SET terms = excluded.terms
