-- members_leave: a session is no longer a member of a group.
-- $1 group_id bigint, $2 session_id uuid
DELETE FROM laneway.member WHERE group_id = $1 AND session_id = $2
