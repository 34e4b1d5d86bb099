-- A batch in which every key is alone in its group, as with most locks. $1 is the front-end, $2 the batch's number,
-- and the arrays have one element a key, in ascending order of the slots: each front-end writes rows in the same order.
--
-- op: 0 reads, -1 reads a key that another group writes, 1 writes a key that is there, 2 deletes one, 3 writes a key that
-- is absent. An expiry is a moment, or a lifetime that begins now by the clock of this server; -1 for never. `named` is
-- a database as clients name it, and `database` the number of its rows.
WITH
{lane}
part AS MATERIALIZED (
    SELECT lane.ahead, lane.moment, u.*, {numbers}[u.named] AS database FROM lane, unnest(
        $3::int[], $4::bytea[], $5::int[], $6::smallint[], $7::bool[], $8::bigint[],
        $9::text[], $10::bytea[], $11::bigint[], $12::bool[], $13::bool[], $14::text[], $15::bool[], $16::bigint[]
    ) WITH ORDINALITY u(named, key, grp, op, is_live, version,
                        kind, value, expires_ms, is_lifetime, keeps_fence, holder, is_lock, slot, place)
),
-- Inserts come before updates, and also lock rows that are there. So a batch with both kinds locks all rows that are
-- there first, in the order of the slots: otherwise two front-ends could wait for each other in a circle.
locked AS MATERIALIZED (
    SELECT FROM part p CROSS JOIN LATERAL (
        SELECT FROM keyfast.keys k WHERE k.database = p.database AND k.slot = p.slot AND k.key = p.key
        FOR NO KEY UPDATE
    ) l WHERE p.op > 0 AND (SELECT bool_or(op = 3) AND bool_or(op IN (1, 2)) FROM part)
),
-- Counting the locks means to wait for them.
due AS MATERIALIZED (SELECT p.*, 0::bigint AS granted FROM part p, (SELECT count(*) FROM locked) l),
-- Keys that are absent are written first. If a key is there, nothing is written.
{insert}
{update}
{written}
-- What is only read, and what could not be written.
rest AS MATERIALIZED (
    SELECT p.* FROM due p LEFT JOIN written w ON w.place = p.place WHERE w.place IS NULL
),
-- The rows that are not as they were guessed, and those that have expired. One that could not be written, and seems to
-- be as it was guessed, was changed by another front-end after this statement had begun: nothing is known of it.
found AS MATERIALIZED (
    SELECT * FROM (
        SELECT p.moment, p.place, p.grp, p.op, p.database, p.slot, p.key, COALESCE(o.version, 0) AS version,
            COALESCE(o.live, false) AS live, o.kind, o.value, o.expires, o.is_lock, o.holder, o.fence, o.since,
            COALESCE(NOT o.live AND o.expires > '-infinity', false) AS has_expired,
            CASE WHEN p.is_live THEN (o.version = p.version AND o.live) IS NOT true ELSE o.live IS true END AS is_wrong
        FROM rest p LEFT JOIN LATERAL (
            SELECT *, k.expires > p.moment AS live FROM keyfast.keys k
            WHERE k.database = p.database AND k.slot = p.slot AND k.key = p.key
        ) o ON true
    ) f WHERE op > 0 OR is_wrong OR has_expired
),
{bury}
judged AS MATERIALIZED (
    SELECT *, is_wrong AND NOT is_unsure AS is_known, op > 0 OR is_wrong OR is_unsure AS is_undone FROM (
        SELECT *, has_expired AND NOT place = ANY (ARRAY(SELECT place FROM buried)::bigint[]) AS is_unsure FROM found
    ) f
),
noted AS (
    INSERT INTO keyfast.undone AS u (front, number, groups)
    SELECT $1::bigint, $2::bigint, array_agg(grp) FROM judged WHERE is_undone HAVING count(*) > 0
    ON CONFLICT (front) DO UPDATE SET number = excluded.number, groups = excluded.groups
)
-- Rows that are not as they were guessed; groups of which nothing is known, as another front-end was faster; when keys
-- expire that were written; and the store's time, with the settings on which the worth of the commit depends.
SELECT 0::smallint AS what, place, version, live, kind, value,
    CASE WHEN expires < 'infinity' AND expires > '-infinity'
        THEN (extract(epoch FROM expires) * 1000)::bigint ELSE -1 END,
    is_lock, holder, fence, (extract(epoch FROM since) * 1000)::bigint
FROM judged WHERE is_known
UNION ALL SELECT 1::smallint, grp, 0, false, NULL, NULL, 0, NULL, NULL, NULL, NULL
FROM judged WHERE is_undone AND NOT is_known
UNION ALL SELECT 3::smallint, place, 0, false, NULL, NULL, (extract(epoch FROM expires) * 1000)::bigint,
    NULL, NULL, NULL, NULL
FROM written WHERE expires < 'infinity' AND expires > '-infinity'
UNION ALL SELECT 2::smallint, 0, 0, false, {durability}, NULL,
    (extract(epoch FROM clock_timestamp() + ahead) * 1000000)::bigint, NULL, NULL, NULL, NULL FROM lane
