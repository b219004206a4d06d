-- sessions_orphan: ends the sessions of buried brokers; their memberships go with them.
-- $1 broker_ids uuid[]
-- Rows: the groups that lost a member.
WITH gone AS (
    SELECT m.group_id FROM laneway.member m JOIN laneway.session s USING (session_id) WHERE s.broker_id = ANY ($1)
),
ended AS (
    DELETE FROM laneway.session WHERE broker_id = ANY ($1)
)
SELECT DISTINCT group_id FROM gone
