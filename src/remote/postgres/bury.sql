-- Before a client learns that a key has expired, its row becomes that of a deleted key. Otherwise another front-end that
-- has found the key alive, and has not committed yet, could still give it a longer life. If one holds the row's lock,
-- nothing is known of the key; so it is if this batch writes the key, too.
gone AS MATERIALIZED (
    SELECT f.moment, f.place, f.database, f.slot, f.key FROM found f CROSS JOIN LATERAL (
        SELECT FROM keyfast.keys k WHERE k.database = f.database AND k.slot = f.slot AND k.key = f.key
            AND k.expires <= f.moment AND k.expires > '-infinity'
        FOR NO KEY UPDATE SKIP LOCKED
    ) l WHERE f.has_expired AND f.op >= 0
),
buried AS (
    UPDATE keyfast.keys o SET kind = 'none', value = '', expires = '-infinity', since = g.moment,
        holder = '', is_lock = false
    FROM gone g WHERE o.database = g.database AND o.slot = g.slot AND o.key = g.key
        AND o.expires <= g.moment
    RETURNING g.place
),
