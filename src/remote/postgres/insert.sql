inserted AS (
    INSERT INTO keyfast.keys AS o (database, key, slot, kind, value, expires, version, fence, since, holder, is_lock)
    SELECT database, key, slot, kind, value,
        CASE WHEN expires_ms < 0 THEN 'infinity'
            WHEN is_lifetime THEN date_trunc('milliseconds', {writes_at}) + expires_ms * interval '1 ms'
            ELSE timestamptz 'epoch' + expires_ms * interval '1 ms' END,
        ($1::bigint << 40) + $2::bigint, nextval('keyfast.fence'), {writes_at}, holder, is_lock
    FROM due p WHERE op = 3
    ON CONFLICT (database, slot, key) DO UPDATE SET kind = excluded.kind, value = excluded.value,
        expires = excluded.expires, version = excluded.version,
        -- Drawn again under the row's lock: the first number was drawn before it.
        fence = nextval('keyfast.fence'), since = excluded.since, holder = excluded.holder,
        is_lock = excluded.is_lock
    WHERE o.expires <= (SELECT moment FROM lane)
    RETURNING o.database, o.slot, o.key, o.expires
),
