-- What was written, by the places of the keys. An INSERT does not return its places, and two keys may share a slot.
written AS MATERIALIZED (
    SELECT p.place, w.expires FROM inserted w
    JOIN due p ON p.op = 3 AND p.slot = w.slot AND p.key = w.key AND p.database = w.database
    UNION ALL SELECT place, expires FROM updated
),
