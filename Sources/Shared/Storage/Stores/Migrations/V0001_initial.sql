-- The first tables. All live in the schema `carillon`, so that they can share a database with an app's own.

-- Everyone who has ever had a token, a device, a setting or a notification.
CREATE TABLE carillon.users (
    user_id text PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- One sequence an inbox: every change raises `version` and stamps the rows that it touched.
CREATE TABLE carillon.inboxes (
    user_id text PRIMARY KEY,
    version bigint NOT NULL DEFAULT 0,
    unread integer NOT NULL DEFAULT 0,
    total integer NOT NULL DEFAULT 0,
    -- Changes up to here may have been forgotten: a client that is behind it starts afresh.
    floor bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE carillon.notifications (
    user_id text NOT NULL,
    id uuid NOT NULL,
    version bigint NOT NULL,
    job_entry text NOT NULL,
    org_id text NOT NULL,
    job_id text,
    type text NOT NULL,
    severity text NOT NULL,
    delivery text NOT NULL,
    lane text NOT NULL,
    channels smallint NOT NULL,
    title text NOT NULL,
    body text NOT NULL,
    data jsonb,
    extras jsonb,
    category text,
    entity_type text,
    entity_id text,
    collapse_key text,
    replaced_by uuid,
    status text NOT NULL,
    status_reason text,
    sent_via text,
    created_at timestamptz NOT NULL,
    delivered_at timestamptz,
    opened_at timestamptz,
    read_at timestamptz,
    expires_at timestamptz,
    keep_until timestamptz,
    deleted_at timestamptz,
    -- When the row was committed, to within its transaction; the sweeper goes by it.
    stored_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, id)
) PARTITION BY HASH (user_id);

DO $$
BEGIN
    FOR part IN 0..15 LOOP
        EXECUTE format(
            'CREATE TABLE carillon.notifications_%s PARTITION OF carillon.notifications '
            'FOR VALUES WITH (MODULUS 16, REMAINDER %s) WITH (fillfactor = 80)', lpad(part::text, 2, '0'), part);
    END LOOP;
END $$;

-- The same (org, job id, user) is notified once.
CREATE UNIQUE INDEX notifications_job ON carillon.notifications (user_id, org_id, job_id) WHERE job_id IS NOT NULL;
CREATE INDEX notifications_unread ON carillon.notifications (user_id, id)
    WHERE read_at IS NULL AND deleted_at IS NULL AND version > 0;
-- The sweeper's way through what was stored. No index names `status`, so that a change of it stays on its page (HOT).
CREATE INDEX notifications_stored ON carillon.notifications (stored_at);

-- Up to where the sweeper has looked: no row stored before is without an owner.
CREATE TABLE carillon.sweep (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    swept_until timestamptz NOT NULL
);
INSERT INTO carillon.sweep (swept_until) VALUES (now());

CREATE TABLE carillon.devices (
    id uuid PRIMARY KEY,
    user_id text NOT NULL,
    platform text NOT NULL,
    provider text NOT NULL,
    app text NOT NULL,
    environment text NOT NULL,
    token text NOT NULL,
    name text,
    device_id text,
    app_version text,
    locale text,
    active boolean NOT NULL DEFAULT true,
    deactivated_reason text,
    registered_at timestamptz NOT NULL,
    last_used_at timestamptz NOT NULL,
    UNIQUE (app, provider, token)
);
CREATE INDEX devices_user ON carillon.devices (user_id) WHERE active;
CREATE INDEX devices_user_all ON carillon.devices (user_id);

CREATE TABLE carillon.preferences (
    user_id text NOT NULL,
    type text NOT NULL,
    in_app boolean,
    push boolean,
    email boolean,
    PRIMARY KEY (user_id, type)
);

CREATE TABLE carillon.user_settings (
    user_id text PRIMARY KEY,
    zone text,
    locale text,
    email text,
    quiet_start smallint,
    quiet_end smallint,
    quiet_weekdays smallint,
    opted_out boolean NOT NULL DEFAULT false
);

-- The audit of sends and token changes: rows are added, never changed.
CREATE TABLE carillon.delivery_attempts (
    at timestamptz NOT NULL,
    user_id text NOT NULL,
    notification_id uuid,
    device_id uuid,
    provider text NOT NULL,
    kind text NOT NULL,
    attempt integer NOT NULL,
    outcome text NOT NULL,
    reason text,
    provider_id text,
    duration_ms integer
) PARTITION BY RANGE (at);
CREATE TABLE carillon.delivery_attempts_default PARTITION OF carillon.delivery_attempts DEFAULT;
CREATE INDEX delivery_attempts_notification ON carillon.delivery_attempts (notification_id, device_id);
CREATE INDEX delivery_attempts_user ON carillon.delivery_attempts (user_id, at);

-- Makes the parts of today and the next seven days.
CREATE FUNCTION carillon.make_attempt_parts(today date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    part date;
BEGIN
    FOR part IN SELECT today + n FROM generate_series(0, 7) AS n LOOP
        IF to_regclass('carillon.delivery_attempts_' || to_char(part, 'YYYYMMDD')) IS NULL THEN
            EXECUTE format(
                'CREATE TABLE carillon.delivery_attempts_%s PARTITION OF carillon.delivery_attempts '
                'FOR VALUES FROM (%L) TO (%L)',
                to_char(part, 'YYYYMMDD'), part::timestamp AT TIME ZONE 'UTC', (part + 1)::timestamp AT TIME ZONE 'UTC');
        END IF;
    END LOOP;
END $$;
SELECT carillon.make_attempt_parts((now() AT TIME ZONE 'UTC')::date);

-- The mirror of the dead stream. Fields that are not UTF-8 text without U+0000 stand as {"base64": "…"}.
CREATE TABLE carillon.dead_letters (
    stream text NOT NULL,
    entry text NOT NULL,
    reason text NOT NULL,
    fields jsonb NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (stream, entry)
);
CREATE INDEX dead_letters_at ON carillon.dead_letters (at);
