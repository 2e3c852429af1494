-- Jobs that are due later: once, or again and again.

CREATE TABLE carillon.schedules (
    id uuid PRIMARY KEY,
    -- Tells firings of the same millisecond apart.
    number bigint GENERATED ALWAYS AS IDENTITY,
    org_id text NOT NULL,
    -- The job's own id.
    job_id text,
    -- Which part of its job it is, where a job was parted by zones.
    part text NOT NULL,
    -- The user, where the job is for one alone.
    user_id text,
    -- The entry that it came by, or `api`.
    source text NOT NULL,
    lane smallint NOT NULL,
    -- The job's fields, [[name, value], …].
    fields jsonb NOT NULL,
    -- A hash of what was asked for, which tells a repeat from another job of the same id.
    content bigint NOT NULL,
    due_at timestamptz NOT NULL,
    -- When it is looked at next: `due_at`, or when the claim of whoever fires it ends. Null for one that has failed.
    wake_at timestamptz,
    -- How often the firing that is due was claimed.
    attempts smallint NOT NULL DEFAULT 0,
    cron text,
    -- The zone that `due_at` follows from; `recipient` for each one's own.
    zone text,
    -- What clocks show when it is due: days after 1970-01-01, minutes after midnight.
    wall_day integer,
    wall_minutes smallint,
    starts_at timestamptz,
    ends_at timestamptz,
    state text NOT NULL DEFAULT 'waiting',
    state_reason text,
    last_fired_at timestamptz,
    created_at timestamptz NOT NULL
);
-- The way to what is due.
CREATE INDEX schedules_wake ON carillon.schedules (lane, wake_at);
-- The same (org, job id) is scheduled once.
CREATE UNIQUE INDEX schedules_job ON carillon.schedules (org_id, job_id, part) WHERE job_id IS NOT NULL AND cron IS NULL;
-- A job without an id is known by its entry.
CREATE INDEX schedules_entry ON carillon.schedules (source) WHERE job_id IS NULL AND source <> 'api';
CREATE INDEX schedules_user ON carillon.schedules (user_id) WHERE user_id IS NOT NULL;
CREATE INDEX schedules_zone ON carillon.schedules (id) WHERE zone IS NOT NULL;
CREATE INDEX schedules_api ON carillon.schedules (org_id) WHERE source = 'api';

-- The version of the time-zone data that `due_at` was computed with.
CREATE TABLE carillon.zone_data (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    version text NOT NULL
);
