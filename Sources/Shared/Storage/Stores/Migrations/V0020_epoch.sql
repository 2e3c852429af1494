-- Inbox versions never repeat, also when the database went back to an earlier moment.
--
-- A restored database would hand out versions that clients have seen with other contents. So each
-- connection compares `server` with the server that it talks to. If they differ, `base` jumps past
-- every version that was handed out, all inboxes count on from it, and clients start afresh.
CREATE TABLE carillon.epoch (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    -- As of carillon.server_identity(); null until the first connection of a service.
    server text,
    -- The least version of every inbox; below 2^53 (until 2109), as JavaScript counts no further.
    base bigint NOT NULL DEFAULT 0
);
INSERT INTO carillon.epoch DEFAULT VALUES;

-- Names this history of this database. It changes with another server, a promotion, a recovery to a
-- point in time, and a dump that is loaded elsewhere or in place of what was there.
CREATE FUNCTION carillon.server_identity() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    system text := '-';
    timeline text := '-';
BEGIN
    -- Some hosted databases refuse one or the other.
    BEGIN
        SELECT system_identifier::text INTO system FROM pg_control_system();
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
    BEGIN
        -- The control file names the timeline only after the next checkpoint.
        timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
    RETURN concat_ws('/', system, timeline,
        (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()), 'carillon.epoch'::regclass::oid);
END $$;

-- Begins a new epoch and returns its base. Call it before the services start after a restore that
-- leaves no trace, such as that of a disk's snapshot.
--
-- The milliseconds keep two restores of the same backup apart; the least step holds where the clock
-- went back.
CREATE FUNCTION carillon.begin_epoch() RETURNS bigint LANGUAGE sql AS $$
    UPDATE carillon.epoch SET server = carillon.server_identity(),
        base = greatest(base + (1::bigint << 32), (extract(epoch FROM clock_timestamp()) * 1000)::bigint << 11)
    RETURNING base
$$;

-- Returns the base. Begins a new epoch first if the server is another; once, however many
-- connections ask.
CREATE FUNCTION carillon.current_epoch() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    identity text := carillon.server_identity();
    known text;
    reached bigint;
BEGIN
    SELECT server, base INTO known, reached FROM carillon.epoch;
    IF known = identity THEN
        RETURN reached;
    END IF;
    SELECT server, base INTO known, reached FROM carillon.epoch FOR UPDATE;
    IF known IS NULL THEN
        UPDATE carillon.epoch SET server = identity;
    ELSIF known <> identity THEN
        reached := carillon.begin_epoch();
    END IF;
    RETURN reached;
END $$;
