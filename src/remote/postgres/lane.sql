-- The front-end's own row first. A batch that comes too late finds another number there, and does nothing.
lane AS (
    UPDATE keyfast.fronts SET last = $2::bigint, seen = clock_timestamp()
    WHERE front = $1::bigint AND last = $2::bigint - 1 RETURNING front
),
