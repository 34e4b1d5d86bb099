-- A batch that writes one key. $1 is the front-end, $2 the batch's number, and the others are as in the other statements.
-- If the row is not as it was guessed, nothing is written, the batch is not counted, and no row is returned.
WITH
-- The front-end's own row is locked first. A batch that comes too late finds another number there, and does nothing.
-- `moment` is the time of the store at which the statement has begun.
lane AS (
    SELECT c.ahead, {moment} AS moment FROM keyfast.fronts f, keyfast.clock c
    WHERE f.front = $1::bigint AND f.last = $2::bigint - 1 AND {is_in_time} AND {is_same_store}
    FOR NO KEY UPDATE OF f
),
due AS (
    SELECT {numbers}[$3::int] AS database, $4::bytea AS key, $5::smallint AS op, $6::bigint AS version, $7::text AS kind,
        $8::bytea AS value, $9::bigint AS expires_ms, $10::bool AS is_lifetime, $11::bool AS keeps_fence,
        $12::text AS holder, $13::bool AS is_lock, $14::bigint AS slot, 1::bigint AS place,
        0::bigint AS granted, ahead, moment
    FROM lane
),
{part}
counted AS (
    UPDATE keyfast.fronts SET last = $2::bigint, seen = (SELECT moment FROM lane)
    WHERE front = $1::bigint AND EXISTS (SELECT FROM {written})
)
-- When the key expires, if it does; the store's time; and the settings on which the worth of the commit depends.
SELECT CASE WHEN expires < 'infinity' AND expires > '-infinity'
        THEN (extract(epoch FROM expires) * 1000)::bigint ELSE -1 END,
    (extract(epoch FROM clock_timestamp() + (SELECT ahead FROM lane)) * 1000000)::bigint, {durability}
FROM {written}
