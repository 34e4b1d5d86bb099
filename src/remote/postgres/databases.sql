-- What version 2 of the schema adds to `schema.sql`. Keyfast adds it when it connects, if its user may; otherwise run it
-- once as a user who may (psql -1 -v ON_ERROR_STOP=1 -f databases.sql), and grant Keyfast's user all rights on its
-- tables and sequences.

-- The number of each database's rows in keyfast.keys: numbers[d] is that of the database d of clients. A flush gives a
-- database a new number, so it is one moment for all clients, however many keys there are. The rows of numbers that no
-- database has are deleted later. There is one row, and each batch reads it.
CREATE TABLE keyfast.databases (only_row bool PRIMARY KEY CHECK (only_row), numbers int[] NOT NULL)
    WITH (fillfactor = 50);
INSERT INTO keyfast.databases
SELECT true, '[0:0]={0}'::int[] || ARRAY(SELECT generate_series(1, (SELECT max(database) FROM keyfast.keys)));
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

-- No front-end gets a number that one had in an earlier schema of this name, and may still use.
SELECT setval('keyfast.front', (SELECT last_value FROM keyfast.front) + (random() * 4000000)::bigint);
-- A front-end of version 1 would not see a flush. From now on the store does nothing for those that are there, and they
-- find the new version when they connect again.
DELETE FROM keyfast.fronts;
UPDATE keyfast.schema_version SET version = 2;
