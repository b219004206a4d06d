-- parked_keys_of_group: the first parked keys of a group that hold something, and how many they are. Those of a group that nobody
-- serves: its lanes are closed.
-- $1 group_id bigint, $2 limit bigint
-- No row: it has none. Locks nothing.
SELECT parked_id, count(*) OVER () AS keys
FROM laneway.parked_key
WHERE group_id = $1 AND (state = 'parked' OR messages > 0)
ORDER BY parked_id
LIMIT $2
