-- A batch of any groups. $1 is the front-end, $2 the batch's number, and the arrays have one element a key, in ascending order of
-- the slots: each front-end locks rows in the same order.
--
-- op: 0 reads, -1 reads a key that another group writes, 1 writes, 2 deletes, 3 writes a key that must be absent and is
-- alone in its group. An expiry is a moment, or a lifetime that begins now by the clock of this server; -1 for never.
-- `named` is a database as clients name it, and `database` the number of its rows. `granted` is the fencing number that a
-- lock gets; 0 for a new one. $20 says how many fencing numbers are drawn.
WITH
{lane}
part AS MATERIALIZED (
    SELECT lane.ahead, lane.moment, u.*, {numbers}[u.named] AS database FROM lane, unnest(
        $3::int[], $4::bytea[], $5::int[], $6::smallint[], $7::bool[], $8::bigint[],
        $9::text[], $10::bytea[], $11::bigint[], $12::bool[], $13::bool[], $14::text[], $15::bool[], $16::bigint[],
        $17::bool[], $18::bool[], $19::bigint[]
    ) WITH ORDINALITY u(named, key, grp, op, is_live, version,
                        kind, value, expires_ms, is_lifetime, keeps_fence, holder, is_lock, slot,
                        is_locked, is_strict, granted, place)
),
-- The rows as they are, and whether each is as it was guessed.
found AS MATERIALIZED (
    SELECT p.*,
        v.version AS has_version,
        COALESCE(l.kind, r.kind) AS has_kind,
        COALESCE(l.value, r.value) AS has_value,
        COALESCE(l.expires, r.expires) AS has_expires,
        COALESCE(l.is_lock, r.is_lock) AS was_lock,
        COALESCE(l.holder, r.holder) AS has_holder,
        COALESCE(l.fence, r.fence) AS has_fence,
        COALESCE(l.since, r.since) AS has_since,
        COALESCE(l.live, r.live, false) AS has_live,
        -- A row that was made for this batch to lock it, and freed since then, is not locked.
        (NOT p.is_locked OR p.op = 3 OR l.version IS NOT NULL) AND CASE
            WHEN p.is_strict THEN v.version = p.version AND COALESCE(l.live, r.live, false) = p.is_live
            WHEN p.is_live THEN COALESCE(l.version, r.version, 0) = p.version AND COALESCE(l.live, r.live, false)
            ELSE NOT COALESCE(l.live, r.live, false)
        END AS is_right,
        COALESCE(p.op <> 3 AND NOT r.live AND r.expires > '-infinity', false) AS has_expired
    FROM part p
    LEFT JOIN LATERAL (
        SELECT o.*, o.expires > p.moment AS live
        FROM keyfast.keys o WHERE p.is_locked AND o.database = p.database AND o.slot = p.slot AND o.key = p.key FOR UPDATE
    ) l ON true
    LEFT JOIN LATERAL (
        SELECT o.*, o.expires > p.moment AS live
        FROM keyfast.keys o WHERE NOT p.is_locked AND o.database = p.database AND o.slot = p.slot AND o.key = p.key
    ) r ON true
    -- A key without a row has a version, too, if it is watched: that of its database's number. If the database was
    -- flushed since then and the key was not written, it has the version that was seen. (-1 has not been seen.)
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN NOT p.is_strict OR COALESCE(l.version, r.version, 0) <> 0 THEN COALESCE(l.version, r.version, 0)
            WHEN NOT p.is_live AND p.version <> -1 AND EXISTS (
                SELECT FROM keyfast.flushed f WHERE f.database = p.named
                    AND (f.number = -2 - p.version OR EXISTS (
                        SELECT FROM keyfast.keys k WHERE k.database = f.number AND k.slot = p.slot AND k.key = p.key
                            AND k.version = p.version))
                    AND NOT EXISTS (
                        SELECT FROM keyfast.flushed later JOIN keyfast.keys k ON k.database = later.number
                        WHERE later.database = p.named AND later.number >= f.number
                            AND k.slot = p.slot AND k.key = p.key AND k.version NOT IN (0, p.version))
            ) THEN p.version
            ELSE -2 - p.database
        END AS version
    ) v
),
{bury}
judged AS MATERIALIZED (
    SELECT *, bool_and(is_right AND NOT is_unsure) OVER (PARTITION BY grp) AS is_done FROM (
        SELECT *, has_expired AND NOT place = ANY (ARRAY(SELECT place FROM buried)::bigint[]) AS is_unsure FROM found
    ) f
),
-- What is written of groups that are done.
due AS MATERIALIZED (SELECT * FROM judged WHERE is_done ORDER BY place),
-- A key that has no row can only be locked by writing it. If another front-end was faster, nothing is written.
{insert}
{update}
{written}
-- Groups that another front-end has overtaken meanwhile.
overtaken AS MATERIALIZED (
    SELECT j.grp FROM due j LEFT JOIN written w ON w.place = j.place WHERE j.op = 3 AND w.place IS NULL
),
noted AS (
    INSERT INTO keyfast.undone AS u (front, number, groups)
    SELECT $1::bigint, $2::bigint, array_agg(grp)
    FROM (SELECT grp FROM judged WHERE NOT is_done UNION ALL SELECT grp FROM overtaken) g HAVING count(*) > 0
    ON CONFLICT (front) DO UPDATE SET number = excluded.number, groups = excluded.groups
)
-- As in the other statement; and fencing numbers, which are larger than those of all rows that were read here.
SELECT 0::smallint AS what, place, has_version, has_live, has_kind, has_value,
    CASE WHEN has_expires < 'infinity' AND has_expires > '-infinity'
        THEN (extract(epoch FROM has_expires) * 1000)::bigint ELSE -1 END,
    was_lock, has_holder, has_fence, (extract(epoch FROM has_since) * 1000)::bigint
FROM judged WHERE NOT is_done AND NOT is_unsure
UNION ALL SELECT 1::smallint, grp, 0, false, NULL, NULL, 0, NULL, NULL, NULL, NULL
FROM (SELECT grp FROM overtaken UNION ALL SELECT grp FROM judged WHERE is_unsure) u
UNION ALL SELECT 3::smallint, place, 0, false, NULL, NULL, (extract(epoch FROM expires) * 1000)::bigint,
    NULL, NULL, NULL, NULL
FROM written WHERE expires < 'infinity' AND expires > '-infinity'
UNION ALL SELECT 2::smallint, 0, 0, false, {durability}, NULL,
    (extract(epoch FROM clock_timestamp() + ahead) * 1000000)::bigint, NULL, NULL, NULL, NULL FROM lane
UNION ALL SELECT 4::smallint, number, nextval('keyfast.fence'), false, NULL, NULL, 0, NULL, NULL, NULL, NULL
FROM lane, generate_series(1, $20::bigint) number
