-- members_join: a session becomes a member of a group; a second time changes only its terms.
-- $1 group_id bigint, $2 session_id uuid, $3 terms text
INSERT INTO laneway.member (group_id, session_id, terms)
VALUES ($1, $2, $3)
ON CONFLICT (group_id, session_id) DO UPDATE SET terms = excluded.terms
