updated AS (
    UPDATE keyfast.keys o SET kind = p.kind, value = p.value,
        expires = CASE WHEN p.op = 2 THEN '-infinity' WHEN p.expires_ms < 0 THEN 'infinity'
            WHEN p.is_lifetime THEN date_trunc('milliseconds', {writes_at}) + p.expires_ms * interval '1 ms'
            ELSE timestamptz 'epoch' + p.expires_ms * interval '1 ms' END,
        version = ($1::bigint << 40) + $2::bigint,
        fence = CASE WHEN p.keeps_fence THEN o.fence WHEN p.granted > 0 THEN p.granted ELSE nextval('keyfast.fence') END,
        since = CASE WHEN p.keeps_fence THEN o.since ELSE {writes_at} END,
        holder = CASE WHEN p.keeps_fence THEN o.holder ELSE p.holder END, is_lock = p.is_lock
    FROM due p
    WHERE p.op IN (1, 2) AND o.database = p.database AND o.slot = p.slot AND o.key = p.key
        AND {is_unchanged}
    RETURNING p.place, o.expires
),
