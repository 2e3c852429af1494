-- The tables of Carillon, in the schema `carillon`, so that they can share a database with an
-- app's. `outbox.sql` adds the outbox, which may also stand alone in another database.
--
-- Ids of users, organisations and jobs compare as bytes (COLLATE "C"). That is the order in which
-- inboxes are locked, and cheaper than the rules of a language. In `users` and `subscriptions` only
-- the index that broadcasts page through has that order, so that no plan takes another.

-- Users

-- Every user who has had a token, a device, a setting or a notification.
CREATE TABLE carillon.users (
    user_id text PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- When the user's last socket closed.
    last_seen timestamptz
);
-- Broadcasts page through sixteen chains of users by a hash of their id, each in byte order.
CREATE INDEX users_part ON carillon.users ((hashtextextended(user_id, 0) & 15), user_id COLLATE "C");

CREATE TABLE carillon.user_settings (
    user_id text COLLATE "C" PRIMARY KEY,
    zone text,
    locale text,
    email text,
    -- Bounces of mail sent before this time do not count against the address.
    email_set_at timestamptz,
    -- When and why the relay rejected the address. No mail goes there until an address is set
    -- again.
    email_invalid_at timestamptz,
    email_invalid_reason text,
    -- Refuses email of every type that is not required; set by one-click unsubscribe.
    email_opted_out boolean NOT NULL DEFAULT false,
    -- Suspends the quiet hours and keeps their times.
    quiet_off boolean NOT NULL DEFAULT false,
    quiet_start smallint,
    quiet_end smallint,
    quiet_weekdays smallint,
    opted_out boolean NOT NULL DEFAULT false
);
-- Operators find users by their address.
CREATE INDEX user_settings_email ON carillon.user_settings (lower(email)) WHERE email IS NOT NULL;

CREATE TABLE carillon.preferences (
    user_id text COLLATE "C" NOT NULL,
    type text NOT NULL,
    in_app boolean,
    push boolean,
    email boolean,
    -- The type's own quiet hours replace the user's; `quiet_off` means none.
    quiet_off boolean NOT NULL DEFAULT false,
    quiet_start smallint,
    quiet_end smallint,
    quiet_weekdays smallint,
    PRIMARY KEY (user_id, type)
);

CREATE TABLE carillon.subscriptions (
    topic text NOT NULL,
    user_id text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, topic)
);
CREATE INDEX subscriptions_part
    ON carillon.subscriptions (topic, (hashtextextended(user_id, 0) & 15), user_id COLLATE "C");

-- Tokens of a user that were issued before `revoked_before` are refused.
CREATE TABLE carillon.token_revocations (
    user_id text COLLATE "C" PRIMARY KEY,
    revoked_before timestamptz NOT NULL,
    -- Numbers the changes in commit order: a reader that has seen N has seen all before it.
    version bigint NOT NULL
);
CREATE UNIQUE INDEX token_revocations_version ON carillon.token_revocations (version);
-- Revocations are forgotten by age, so that the others need not be read each time.
CREATE INDEX token_revocations_revoked_before ON carillon.token_revocations (revoked_before);

-- A revocation locks this row until its commit.
CREATE TABLE carillon.token_revocation_version (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    version bigint NOT NULL
);
INSERT INTO carillon.token_revocation_version (version) VALUES (0);

-- Inboxes

-- Each inbox has one sequence: every change increments `version` and stamps the rows it touched.
CREATE TABLE carillon.inboxes (
    user_id text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL DEFAULT 0,
    unread integer NOT NULL DEFAULT 0,
    total integer NOT NULL DEFAULT 0,
    -- Changes up to this version may be forgotten: a client behind it starts over.
    floor bigint NOT NULL DEFAULT 0,
    -- Tells an inbox from an erased predecessor at the same version.
    begun_at timestamptz NOT NULL DEFAULT now(),
    -- Counts the changes of listed rows that raise no version: notes of their `decision`.
    notes bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE carillon.notifications (
    user_id text COLLATE "C" NOT NULL,
    id uuid NOT NULL,
    version bigint NOT NULL,
    job_entry text NOT NULL,
    org_id text COLLATE "C" NOT NULL,
    job_id text COLLATE "C",
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
    -- Why the notification got less than its job asked for.
    decision text,
    sent_via text,
    -- The device of the first push; statistics of opened notifications need its platform.
    sent_device uuid,
    created_at timestamptz NOT NULL,
    delivered_at timestamptz,
    opened_at timestamptz,
    read_at timestamptz,
    expires_at timestamptz,
    keep_until timestamptz,
    deleted_at timestamptz,
    -- The time of the storing transaction; the sweeper scans by it.
    stored_at timestamptz NOT NULL DEFAULT now(),
    -- When the notification entered a provider's stream; null if within 30 s of `stored_at`. So
    -- most changes of status stay on their page, and the index is small.
    handed_at timestamptz,
    PRIMARY KEY (user_id, id)
) WITH (fillfactor = 45);

-- No index contains `status`, so that a change of it stays on its page (HOT). A batch changes all
-- rows of a page in one transaction, and makes them a little longer. So each page has room for a
-- second version of each row, or the changed rows would move to other pages and to every index.

-- Notifies once for each (org, job id, user); in this order it also finds all notifications of a
-- job.
CREATE UNIQUE INDEX notifications_job ON carillon.notifications (org_id, job_id, user_id) WHERE job_id IS NOT NULL;
-- The app's badge leaves out notifications that were opened but not read.
CREATE INDEX notifications_opened ON carillon.notifications (user_id)
    WHERE opened_at IS NOT NULL AND read_at IS NULL AND deleted_at IS NULL AND version > 0;
-- Finds the notifications that a newer one replaces.
CREATE INDEX notifications_collapse ON carillon.notifications (user_id, collapse_key)
    WHERE collapse_key IS NOT NULL AND deleted_at IS NULL;
-- The sweeper finds rows without an owner.
CREATE INDEX notifications_stored ON carillon.notifications (stored_at);
-- The repair finds rows that Redis may have lost with its last seconds.
CREATE INDEX notifications_handed ON carillon.notifications (handed_at) WHERE handed_at IS NOT NULL;
CREATE INDEX notifications_keep_until ON carillon.notifications (keep_until)
    WHERE keep_until IS NOT NULL AND deleted_at IS NULL;
-- Retention finds tombstones by age.
CREATE INDEX notifications_deleted ON carillon.notifications (deleted_at) WHERE deleted_at IS NOT NULL;

-- Notifications that their users archived. Their rows are tombstones, which clients drop, with a
-- `deleted_at` in the future, so that retention keeps them.
CREATE TABLE carillon.archived (
    user_id text COLLATE "C" NOT NULL,
    notification_id uuid NOT NULL,
    archived_at timestamptz NOT NULL,
    PRIMARY KEY (user_id, notification_id)
);

-- Watermarks of the scans by `stored_at`.
CREATE TABLE carillon.sweep (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    -- No row stored before this is without an owner.
    swept_until timestamptz NOT NULL,
    -- No listed row stored before this is too old for its inbox.
    retained_from timestamptz NOT NULL DEFAULT '-infinity',
    -- The audit may lack attempts from before this.
    audited_from timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO carillon.sweep (swept_until) VALUES (now());

-- Epochs
--
-- Inbox versions never repeat, even when the database goes back to an earlier state. A restored
-- database would assign versions again that clients have seen with other contents. So each
-- connection compares `server` with the server that it talks to. If they differ, `base` jumps past
-- every assigned version, all inboxes count on from it, and clients start over.

CREATE TABLE carillon.epoch (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    -- As of carillon.server_identity(); null until a service first connects.
    server text,
    -- The lowest version of every inbox; below 2^53 (until 2109), the limit of JavaScript.
    base bigint NOT NULL DEFAULT 0
);
INSERT INTO carillon.epoch DEFAULT VALUES;

-- Identifies this database and its history. It changes with another server, a promotion, a
-- point-in-time recovery, and a dump that is loaded elsewhere or over the old data.
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
-- The milliseconds keep two restores of the same backup apart; the minimum step covers a clock that
-- went back.
CREATE FUNCTION carillon.begin_epoch() RETURNS bigint LANGUAGE sql AS $$
    UPDATE carillon.epoch SET server = carillon.server_identity(),
        base = greatest(base + (1::bigint << 32), (extract(epoch FROM clock_timestamp()) * 1000)::bigint << 11)
    RETURNING base
$$;

-- Returns the base. Begins a new epoch first if the server is another, once for all connections.
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

-- The number of parts over which the keys of Redis are spread; one row.
CREATE TABLE carillon.layout (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    parts int4 NOT NULL CHECK (parts BETWEEN 1 AND 256),
    -- The numbers of parts that the installation had before it grew.
    former int4[] NOT NULL DEFAULT '{}'
);

-- Devices

CREATE TABLE carillon.devices (
    id uuid PRIMARY KEY,
    user_id text COLLATE "C" NOT NULL,
    platform text NOT NULL,
    provider text NOT NULL,
    app text NOT NULL,
    environment text NOT NULL,
    token text NOT NULL,
    name text,
    device_id text,
    app_version text,
    locale text,
    -- Switched off by the user; the token stays valid.
    silenced boolean NOT NULL DEFAULT false,
    active boolean NOT NULL DEFAULT true,
    deactivated_reason text,
    -- When `active` became false; null for an active device.
    inactive_since timestamptz,
    -- When the user first registered the device; null means `registered_at`.
    created_at timestamptz,
    registered_at timestamptz NOT NULL,
    -- Since when the user's pushes are enqueued for it: it is new, active again or no longer
    -- silenced. Another registration or a new token of an active device changes nothing.
    pushed_since timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz NOT NULL
);
-- An FCM topic and the token of a webhook are only names, which several users and apps may have.
-- All other tokens are a device's own: a registration takes them from other users and apps.
CREATE UNIQUE INDEX devices_token ON carillon.devices (
    token, provider,
    (CASE WHEN provider = 'webhook' OR starts_with(token, '/topics/') THEN md5(user_id) ELSE '' END), app
);
CREATE INDEX devices_user ON carillon.devices (user_id);
-- Leaves out devices that are registered only once. They never become stale, so each search would
-- read them.
CREATE INDEX devices_stale ON carillon.devices (last_used_at)
    WHERE active AND provider <> 'webhook' AND NOT starts_with(token, '/topics/');
CREATE INDEX devices_inactive ON carillon.devices (inactive_since) WHERE inactive_since IS NOT NULL;

CREATE FUNCTION carillon.note_device_switched() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.active <> NEW.active THEN
        NEW.inactive_since := CASE WHEN NOT NEW.active THEN now() END;
    END IF;
    IF NEW.active AND NOT NEW.silenced THEN
        NEW.pushed_since := now();
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER device_switched BEFORE UPDATE OF active, silenced, user_id ON carillon.devices
    FOR EACH ROW WHEN ((OLD.active, OLD.silenced, OLD.user_id) IS DISTINCT FROM (NEW.active, NEW.silenced, NEW.user_id))
    EXECUTE FUNCTION carillon.note_device_switched();

-- The audit of sends, token changes and clients' reports. Rows are only added; one partition a day.
CREATE TABLE carillon.delivery_attempts (
    at timestamptz NOT NULL,
    user_id text COLLATE "C" NOT NULL,
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
CREATE INDEX delivery_attempts_at ON carillon.delivery_attempts (at);
-- Clients' reports are few among many rows.
CREATE INDEX delivery_attempts_reports ON carillon.delivery_attempts (at) WHERE kind IN ('permission', 'registration');
-- Operators list the newest failures, few among many attempts.
CREATE INDEX delivery_attempts_failed ON carillon.delivery_attempts (at)
    WHERE outcome = 'failed' AND kind IN ('push', 'email');

-- The partitions of today and the next seven days; dispatchers add the later ones.
DO $$
DECLARE
    part date;
BEGIN
    FOR part IN SELECT (now() AT TIME ZONE 'UTC')::date + n FROM generate_series(0, 7) AS n LOOP
        EXECUTE format(
            'CREATE TABLE carillon.delivery_attempts_%s PARTITION OF carillon.delivery_attempts '
            'FOR VALUES FROM (%L) TO (%L)',
            to_char(part, 'YYYYMMDD'), part::timestamp AT TIME ZONE 'UTC',
            (part + 1)::timestamp AT TIME ZONE 'UTC');
    END LOOP;
END $$;

-- Drops the oldest partition that ends before `first_kept`, or else empties the default partition
-- if all of it is older. Returns the name; null if none is left. Waits one second for readers.
-- `sweep` notes from when the audit is complete.
CREATE FUNCTION carillon.drop_attempt_partition(first_kept date) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
DECLARE
    part text;
    newest timestamptz;
    complete_from timestamptz := first_kept::timestamp AT TIME ZONE 'UTC';
BEGIN
    SELECT c.relname INTO part
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'carillon.delivery_attempts'::regclass AND c.relname ~ '^delivery_attempts_[0-9]{8}$'
        AND c.relname < 'delivery_attempts_' || to_char(first_kept, 'YYYYMMDD')
    ORDER BY c.relname LIMIT 1;
    IF part IS NOT NULL THEN
        complete_from := (to_date(right(part, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC';
    END IF;
    -- A value in the future comes from a wrong clock.
    UPDATE carillon.sweep SET audited_from = complete_from
    WHERE audited_from < complete_from OR audited_from > now();
    IF part IS NOT NULL THEN
        EXECUTE format('DROP TABLE carillon.%I', part);
        RETURN part;
    END IF;
    SELECT max(at) INTO newest FROM carillon.delivery_attempts_default;
    IF newest < complete_from THEN
        TRUNCATE carillon.delivery_attempts_default;
        RETURN 'delivery_attempts_default';
    END IF;
    RETURN NULL;
END $$;

-- Jobs

-- Cancelled jobs, by their own id or by their entry's (`1700000000000-0`, with or without its
-- stream). A job that arrives later, or returns from the dead letters, is stored as cancelled. So
-- these rows are kept longer than dead letters.
CREATE TABLE carillon.cancellations (
    org_id text COLLATE "C" NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (org_id, job_id)
);
CREATE INDEX cancellations_at ON carillon.cancellations (at);

-- The dead-letter queue. A field that is not UTF-8, or contains U+0000, stands as {"base64": "…"}.
CREATE TABLE carillon.dead_letters (
    -- For lists and people; the primary key stays the entry.
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    stream text NOT NULL,
    entry text NOT NULL,
    reason text NOT NULL,
    fields jsonb NOT NULL,
    at timestamptz NOT NULL,
    -- When the job goes back to its stream; null if no replay is wanted.
    replay_at timestamptz,
    PRIMARY KEY (stream, entry)
);
CREATE UNIQUE INDEX dead_letters_id ON carillon.dead_letters (id);
CREATE INDEX dead_letters_at ON carillon.dead_letters (at);
CREATE INDEX dead_letters_replay ON carillon.dead_letters (replay_at) WHERE replay_at IS NOT NULL;

-- Jobs that are due later, once or repeatedly.
CREATE TABLE carillon.schedules (
    id uuid PRIMARY KEY,
    -- Keeps firings of the same millisecond apart.
    number bigint GENERATED ALWAYS AS IDENTITY,
    org_id text COLLATE "C" NOT NULL,
    -- The job's own id, or its entry or schedule; null if the schedule repeats.
    job_id text COLLATE "C",
    -- The part of a job that was split by time zones.
    part text NOT NULL,
    -- Null for a job with several recipients or exceptions, and for a page of a broadcast.
    user_id text COLLATE "C",
    -- The job's entry; `api`; or `snooze//` and the job whose notification a snooze brings back.
    source text NOT NULL,
    lane smallint NOT NULL,
    -- The job's fields, [[name, value], …].
    fields jsonb NOT NULL,
    -- A hash of the request, which tells a repeat from another job with the same id.
    content bigint NOT NULL,
    due_at timestamptz NOT NULL,
    -- When a dispatcher looks next: `due_at`, or the end of a claim. Null after a failure.
    wake_at timestamptz,
    -- How often the current firing was claimed.
    attempts smallint NOT NULL DEFAULT 0,
    cron text,
    -- The time zone of `due_at`; `recipient` for each recipient's own.
    zone text,
    -- The local time of `due_at`: days since 1970-01-01, minutes since midnight.
    wall_day integer,
    wall_minutes smallint,
    starts_at timestamptz,
    ends_at timestamptz,
    state text NOT NULL DEFAULT 'waiting',
    state_reason text,
    last_fired_at timestamptz,
    created_at timestamptz NOT NULL
);
-- Pages of broadcasts that are due wait for room in their lane, among jobs that do not.
CREATE INDEX schedules_due ON carillon.schedules (lane, wake_at) WHERE part NOT LIKE '% %';
CREATE INDEX schedules_pages ON carillon.schedules (lane, wake_at) WHERE part LIKE '% %';
-- Schedules once for each (org, job id).
CREATE UNIQUE INDEX schedules_job ON carillon.schedules (org_id, job_id, part) WHERE job_id IS NOT NULL AND cron IS NULL;
CREATE INDEX schedules_user ON carillon.schedules (user_id) WHERE user_id IS NOT NULL;
-- Erasures search the schedules that are for several users.
CREATE INDEX schedules_shared ON carillon.schedules (id) WHERE user_id IS NULL;
CREATE INDEX schedules_zone ON carillon.schedules (id) WHERE zone IS NOT NULL;
CREATE INDEX schedules_api ON carillon.schedules (org_id) WHERE source = 'api';
-- A cancelled job ends the snoozes of its notifications, whose rows may be gone.
CREATE INDEX schedules_snoozed ON carillon.schedules (org_id, source) WHERE source LIKE 'snooze//%';

-- The version of the time zone data behind every `due_at`.
CREATE TABLE carillon.zone_data (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    version text NOT NULL
);

-- Jobs for a topic or for everyone, expanded in pages.
CREATE TABLE carillon.broadcasts (
    -- Derived from the entry, so that a repeat has the same id.
    id uuid PRIMARY KEY,
    org_id text COLLATE "C" NOT NULL,
    -- The job's own, or this row's id.
    job_id text COLLATE "C" NOT NULL,
    job_entry text NOT NULL,
    -- The stream and the fields of the entry, from which each page makes its notifications.
    stream text NOT NULL,
    fields jsonb NOT NULL,
    -- Null for everyone.
    topic text,
    lane text NOT NULL,
    urgency smallint NOT NULL,
    -- counting, awaiting_confirmation, expanding, paused, done, cancelling, cancelled, failed
    state text NOT NULL,
    reason text,
    -- The number of users when they were counted.
    audience bigint,
    created_at timestamptz NOT NULL,
    -- When a full deliveries stream last held a page back.
    held_at timestamptz,
    -- The dispatcher that counts or withdraws; a claim expires.
    claimed_by text,
    claimed_until timestamptz,
    -- The progress of the withdrawal.
    withdrawn_to text NOT NULL DEFAULT '',
    withdrawn bigint NOT NULL DEFAULT 0,
    UNIQUE (org_id, job_id)
);
CREATE INDEX broadcasts_entry ON carillon.broadcasts (job_entry);
CREATE INDEX broadcasts_open ON carillon.broadcasts (urgency, id)
    WHERE state IN ('counting', 'expanding', 'cancelling');
-- Operators find the broadcasts that wait for them among all that are kept, most of which are done.
CREATE INDEX broadcasts_state ON carillon.broadcasts (state, id) WHERE state <> 'done';

-- The users whom a broadcast leaves out, a JSON array; null if there is none. The function never
-- fails, because an index uses it.
CREATE FUNCTION carillon.excluded_users(fields jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (SELECT (f ->> 1)::jsonb FROM jsonb_array_elements(fields) f WHERE f ->> 0 = 'except' LIMIT 1);
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;
-- Erasures find the broadcasts that leave a user out.
CREATE INDEX broadcasts_excluded ON carillon.broadcasts USING gin (carillon.excluded_users(fields))
    WHERE fields @> '[["except"]]';
-- Retention finds ended broadcasts by age.
CREATE INDEX broadcasts_ended ON carillon.broadcasts (created_at) WHERE state IN ('done', 'cancelled', 'failed');

CREATE TABLE carillon.broadcast_chains (
    broadcast uuid NOT NULL REFERENCES carillon.broadcasts (id) ON DELETE CASCADE,
    part smallint NOT NULL,
    is_done boolean NOT NULL DEFAULT false,
    pages integer NOT NULL DEFAULT 0,
    -- The last user of the last page.
    reached text NOT NULL DEFAULT '',
    claimed_by text,
    claimed_until timestamptz,
    PRIMARY KEY (broadcast, part)
) WITH (fillfactor = 50);
-- Erasures find the chains whose last page ended with the user.
CREATE INDEX broadcast_chains_reached ON carillon.broadcast_chains (reached) WHERE reached <> '';

-- Written in the transaction that stores a page, so that storing it twice fails on the key.
CREATE TABLE carillon.broadcast_pages (
    broadcast uuid NOT NULL REFERENCES carillon.broadcasts (id) ON DELETE CASCADE,
    part smallint NOT NULL,
    number integer NOT NULL,
    selected integer NOT NULL,
    stored integer NOT NULL,
    -- Why the others were not stored: `{"opted_out": 3}`.
    counted jsonb NOT NULL,
    -- If the broadcast no longer expands, the statement yields null, which this refuses.
    at timestamptz NOT NULL,
    PRIMARY KEY (broadcast, part, number)
);

-- Deferred work

-- Steps that are due at `due_at`. A dispatcher that takes a row moves `due_at` on, and deletes the
-- row when its work is done.
CREATE TABLE carillon.follow_ups (
    user_id text COLLATE "C" NOT NULL,
    notification_id uuid NOT NULL,
    kind text NOT NULL,
    due_at timestamptz NOT NULL,
    -- Why it was deferred: rows that wait for the end of quiet hours are due again when those
    -- change.
    reason text,
    critical boolean NOT NULL DEFAULT false,
    -- When it was first due, if a dispatcher has taken it: a change of quiet hours leaves it alone.
    was_due_at timestamptz,
    PRIMARY KEY (user_id, notification_id, kind)
) WITH (fillfactor = 80);
CREATE INDEX follow_ups_due ON carillon.follow_ups (due_at);
-- Finds critical rows before any number of others.
CREATE INDEX follow_ups_critical_due ON carillon.follow_ups (due_at) WHERE critical;

-- A digest's window. A dispatcher that flushes it moves `due_at` on, and deletes the row when the
-- summary is on its way.
CREATE TABLE carillon.digests (
    id uuid PRIMARY KEY,
    user_id text COLLATE "C" NOT NULL,
    org_id text COLLATE "C" NOT NULL,
    type text NOT NULL,
    key text NOT NULL,
    lane text NOT NULL,
    -- `open` takes items; the others take none, so that late items open the next window. `claimed`:
    -- a dispatcher works on it; the next claim decides about its items again. `stored`: its summary
    -- is stored, or it needs none, and the fates of its items are final.
    state text NOT NULL DEFAULT 'open',
    due_at timestamptz NOT NULL,
    -- The latest end of a sliding window; the end of the window once a dispatcher has moved
    -- `due_at` on.
    last_at timestamptz NOT NULL,
    count integer NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX digests_open ON carillon.digests (user_id, org_id, type, key) WHERE state = 'open';
CREATE INDEX digests_due ON carillon.digests (due_at);
CREATE INDEX digests_user ON carillon.digests (user_id);

-- A single item is a notification of its own; the others are held for the summary.
CREATE TABLE carillon.digest_items (
    user_id text COLLATE "C" NOT NULL,
    notification_id uuid NOT NULL,
    digest_id uuid NOT NULL,
    is_single boolean NOT NULL,
    gathered_at timestamptz NOT NULL,
    -- Set when the window is claimed: `cancelled`, `expired` or `read` if the item drops out,
    -- `alone` if no other is left. Null: it waits, or a summary contains it.
    fate text,
    job_entry text NOT NULL,
    org_id text COLLATE "C" NOT NULL,
    job_id text COLLATE "C",
    type text NOT NULL,
    severity text NOT NULL,
    delivery text NOT NULL,
    -- The channels that the user's preferences left.
    channels smallint NOT NULL,
    title text NOT NULL,
    body text NOT NULL,
    data jsonb,
    extras jsonb,
    category text,
    entity_type text,
    entity_id text,
    collapse_key text,
    -- The job's own; a type's time to live begins with the summary.
    expires_at timestamptz,
    keep_until timestamptz,
    PRIMARY KEY (user_id, notification_id)
);
CREATE INDEX digest_items_digest ON carillon.digest_items (digest_id, notification_id);
-- As `notifications_job`: also finds all items of a job.
CREATE UNIQUE INDEX digest_items_job ON carillon.digest_items (org_id, job_id, user_id) WHERE job_id IS NOT NULL;
CREATE INDEX digest_items_entry ON carillon.digest_items (job_entry) WHERE NOT is_single;
CREATE INDEX digest_items_gathered ON carillon.digest_items (gathered_at);

-- Adds an item to the open window of its key. Opens one if there is none or its time is over.
-- Returns `single` or `held`, `cancelled` for an item that was cancelled before it came and, for a
-- job id that came before, `duplicate`, or `conflict` if the contents differ. A repeated item gives
-- the same answer. A duplicate opens no window. A sliding window never gets shorter, even if an
-- item is gathered late, and a window with 10,000 items is over.
CREATE FUNCTION carillon.gather(
    item carillon.digest_items, digest_key text, urgency text, span interval, maximum interval, is_sliding boolean,
    singles integer
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    known carillon.digest_items;
    found_digest carillon.digests;
BEGIN
    SELECT * INTO known FROM carillon.digest_items i
    WHERE i.user_id = item.user_id AND i.notification_id = item.notification_id;
    IF FOUND THEN
        RETURN CASE WHEN known.is_single THEN 'single' ELSE 'held' END;
    END IF;
    IF EXISTS (
        SELECT FROM carillon.cancellations c
        WHERE c.org_id = item.org_id
            AND c.job_id = ANY (ARRAY[item.job_id, item.job_entry, split_part(item.job_entry, '/', 2)])
    ) THEN
        RETURN 'cancelled';
    END IF;
    SELECT * INTO known FROM carillon.digest_items i
    WHERE i.user_id = item.user_id AND i.org_id = item.org_id AND i.job_id = item.job_id;
    IF FOUND THEN
        RETURN CASE WHEN (known.type, known.title, known.body, known.data)
            IS DISTINCT FROM (item.type, item.title, item.body, item.data) THEN 'conflict' ELSE 'duplicate' END;
    END IF;
    LOOP
        SELECT * INTO found_digest FROM carillon.digests d
        WHERE d.user_id = item.user_id AND d.org_id = item.org_id AND d.type = item.type AND d.key = digest_key
            AND d.state = 'open'
        FOR UPDATE;
        IF FOUND AND found_digest.due_at > item.gathered_at THEN
            EXIT;
        ELSIF FOUND THEN
            UPDATE carillon.digests SET state = 'closing' WHERE id = found_digest.id;
        ELSE
            -- A random id, because a repeat of the item may open the next window.
            INSERT INTO carillon.digests (id, user_id, org_id, type, key, lane, due_at, last_at)
            VALUES (gen_random_uuid(), item.user_id, item.org_id, item.type, digest_key, 'bulk',
                item.gathered_at + span, item.gathered_at + greatest(span, maximum))
            ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;
    item.digest_id := found_digest.id;
    item.is_single := found_digest.count < singles;
    INSERT INTO carillon.digest_items SELECT item.* ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN CASE WHEN EXISTS (
            SELECT FROM carillon.digest_items i
            WHERE i.user_id = item.user_id AND i.org_id = item.org_id AND i.job_id = item.job_id
                AND (i.type, i.title, i.body, i.data) IS DISTINCT FROM (item.type, item.title, item.body, item.data)
        ) THEN 'conflict' ELSE 'duplicate' END;
    END IF;
    UPDATE carillon.digests SET
        count = count + 1,
        -- The most urgent item decides, without single ones.
        lane = CASE
            WHEN NOT item.is_single
                AND array_position('{critical,normal,bulk}', urgency) < array_position('{critical,normal,bulk}', lane)
            THEN urgency ELSE lane
        END,
        due_at = CASE
            WHEN count >= 9999 THEN least(due_at, item.gathered_at)
            WHEN is_sliding THEN least(last_at, greatest(due_at, item.gathered_at + span)) ELSE due_at
        END
    WHERE id = found_digest.id;
    RETURN CASE WHEN item.is_single THEN 'single' ELSE 'held' END;
END $$;

-- Webhooks

CREATE TABLE carillon.webhooks (
    id uuid PRIMARY KEY,
    -- The organisation whose events it gets; null for all.
    org_id text COLLATE "C",
    url text NOT NULL,
    -- The kinds of events, a JSON array; null for all.
    events jsonb,
    -- Signs the requests, so a hash would not do.
    secret text NOT NULL,
    -- active, failing or off
    status text NOT NULL DEFAULT 'active',
    status_reason text,
    -- When requests began to fail without a success since, and how many have.
    failing_since timestamptz,
    failures integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX webhooks_url ON carillon.webhooks (coalesce(org_id, ''), (org_id IS NULL), url);
