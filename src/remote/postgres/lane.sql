-- The front-end's own row first. A batch that comes too late finds another number there, and does nothing; nor does
-- one on a server whose clock has jumped ahead.
lane AS (
    UPDATE keyfast.fronts f SET last = $2::bigint, seen = {moment}
    -- `ahead` is what makes the server's clock that of the store, and `moment` is the time of the store at which the
    -- statement has begun: it judges all keys by that.
    FROM keyfast.clock c
    WHERE f.front = $1::bigint AND f.last = $2::bigint - 1 AND {is_in_time} AND {is_same_store}
    RETURNING c.ahead, f.seen AS moment
),
