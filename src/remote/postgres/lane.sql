-- The front-end's own row first. A batch that comes too late finds another number there, and does nothing; nor does
-- one on a server whose clock has jumped ahead. `ahead` is what makes the server's clock that of the store.
lane AS (
    UPDATE keyfast.fronts f SET last = $2::bigint, seen = clock_timestamp() + c.ahead
    FROM keyfast.clock c
    WHERE f.front = $1::bigint AND f.last = $2::bigint - 1 AND {is_in_time} RETURNING c.ahead
),
