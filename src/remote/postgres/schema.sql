-- What Keyfast keeps in PostgreSQL. Keyfast creates this when it first connects, if its user may; otherwise run this file
-- once as a user who may (psql -1 -v ON_ERROR_STOP=1 -f schema.sql), and grant Keyfast's user all rights on the schema, on
-- its tables and on its sequences. Only Keyfast may write here: psql may read.
CREATE SCHEMA keyfast;

-- The version of these tables. Each front-end checks it when it connects.
CREATE TABLE keyfast.schema_version (version int NOT NULL);
INSERT INTO keyfast.schema_version VALUES (2);

-- One row a key. A key that was deleted keeps its row for some minutes, as kind 'none' with expiry '-infinity', so
-- that its next holder gets a higher fencing number.
CREATE TABLE keyfast.keys (
    -- The number that the key's database has in keyfast.databases.
    database int NOT NULL,
    key bytea NOT NULL,
    -- A hash of the key, by which SCAN goes on.
    slot bigint NOT NULL,
    kind text NOT NULL,
    -- A string as it is; any other value as DUMP makes it.
    value bytea NOT NULL,
    expires timestamptz NOT NULL,
    -- Different after each change.
    version bigint NOT NULL,
    -- Grows whenever the value changes, over all keys.
    fence bigint NOT NULL,
    -- When that was, or when the key was deleted.
    since timestamptz NOT NULL,
    -- Who has written it: the front-end's name and the client's.
    holder text NOT NULL,
    -- Whether the key is a lock: it was written because it was absent.
    is_lock bool NOT NULL,
    PRIMARY KEY (database, slot, key)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX keys_expires ON keyfast.keys (expires, since) WHERE expires < 'infinity';
-- Fencing numbers. They begin at the clock, so that they are larger than those of an earlier schema, and of locks that
-- were in the memory of a server.
CREATE SEQUENCE keyfast.fence;
SELECT setval('keyfast.fence', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

-- One row a front-end, with its last batch. So a front-end that has lost its connection learns what the store did.
CREATE TABLE keyfast.fronts (
    front bigint PRIMARY KEY,
    name text NOT NULL,
    last bigint NOT NULL,
    seen timestamptz NOT NULL
) WITH (fillfactor = 50);
-- The groups of its last batch that were not done, if there were any.
CREATE TABLE keyfast.undone (
    front bigint PRIMARY KEY,
    number bigint NOT NULL,
    groups int[] NOT NULL
) WITH (fillfactor = 50);
-- No front-end gets a number that one had in an earlier schema of this name, and may still use.
CREATE SEQUENCE keyfast.front;
SELECT setval('keyfast.front', 1 + (random() * 4000000)::bigint);

-- The secret by which front-ends know each other's news. The first front-end makes it. No other user may read it.
CREATE TABLE keyfast.secret (is_only bool PRIMARY KEY CHECK (is_only), secret bytea NOT NULL);

-- The front-end that frees rows and finds keys that have expired, and for how long it may.
CREATE TABLE keyfast.sweeper (
    only_row bool PRIMARY KEY CHECK (only_row),
    front bigint NOT NULL,
    until timestamptz NOT NULL
);

-- The number of each database's rows in keyfast.keys: numbers[d] is that of the database d of clients. A flush gives a
-- database a new number, so it is one moment for all clients, however many keys there are. The rows of numbers that no
-- database has are deleted later. There is one row, and each batch reads it.
CREATE TABLE keyfast.databases (only_row bool PRIMARY KEY CHECK (only_row), numbers int[] NOT NULL)
    WITH (fillfactor = 50);
INSERT INTO keyfast.databases VALUES (true, '[0:0]={0}');
-- New numbers, beyond those of all databases that clients may name. No number is given twice. There are two billion, and
-- FLUSHALL takes one for each database: after that, flushes are refused.
CREATE SEQUENCE keyfast.number AS int START 16384;

-- The numbers that databases had before they were flushed. Their rows stay for a minute, so that EXEC finds whether a
-- watched, absent key was written before the flush.
CREATE TABLE keyfast.flushed (
    database int NOT NULL,
    number int NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (database, number)
);

-- The time of the store: that of the server's clock, and `ahead`. Front-ends set it when a server with another clock
-- takes over, so that time goes on as it was, and note which server it was set for.
CREATE TABLE keyfast.clock (
    only_row bool PRIMARY KEY CHECK (only_row),
    ahead interval NOT NULL,
    -- When that server was started.
    server timestamptz NOT NULL,
    -- How often it was set.
    changes bigint NOT NULL
);
INSERT INTO keyfast.clock VALUES (true, '0', pg_postmaster_start_time(), 0);
