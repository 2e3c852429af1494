-- Jobs for a topic's subscribers or for everyone, expanded in pages.

-- Sixteen chains of users by a hash of their id, each in the order of bytes.
CREATE INDEX users_part ON carillon.users ((hashtextextended(user_id, 0) & 15), user_id COLLATE "C");
CREATE INDEX subscriptions_part
    ON carillon.subscriptions (topic, (hashtextextended(user_id, 0) & 15), user_id COLLATE "C");

CREATE TABLE carillon.broadcasts (
    -- From the entry, so that one that is taken twice is known.
    id uuid PRIMARY KEY,
    org_id text NOT NULL,
    -- The job's own, or this row's id.
    job_id text NOT NULL,
    job_entry text NOT NULL,
    -- The entry's stream and fields: what the notifications are made of, again for each page.
    stream text NOT NULL,
    fields jsonb NOT NULL,
    -- Null for everyone.
    topic text,
    lane text NOT NULL,
    urgency smallint NOT NULL,
    -- counting, awaiting_confirmation, expanding, paused, done, cancelling, cancelled, failed
    state text NOT NULL,
    reason text,
    -- How many users the audience had when they were counted.
    audience bigint,
    created_at timestamptz NOT NULL,
    -- Somebody's expansion was held back by a full deliveries stream.
    held_at timestamptz,
    -- Who counts it, or withdraws what it stored; a claim lapses.
    claimed_by text,
    claimed_until timestamptz,
    -- How far the withdrawal has come.
    withdrawn_to text NOT NULL DEFAULT '',
    withdrawn bigint NOT NULL DEFAULT 0,
    UNIQUE (org_id, job_id)
);
CREATE INDEX broadcasts_entry ON carillon.broadcasts (job_entry);
CREATE INDEX broadcasts_open ON carillon.broadcasts (urgency, id)
    WHERE state IN ('counting', 'expanding', 'cancelling');

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

-- Written in the transaction that stores a page's notifications: a page that is stored twice fails on its key.
CREATE TABLE carillon.broadcast_pages (
    broadcast uuid NOT NULL REFERENCES carillon.broadcasts (id) ON DELETE CASCADE,
    part smallint NOT NULL,
    number integer NOT NULL,
    after_user text NOT NULL,
    until_user text NOT NULL,
    selected integer NOT NULL,
    stored integer NOT NULL,
    -- Why the others were not: `{"opted_out": 3}`.
    counted jsonb NOT NULL,
    -- Null, and so refused, where the broadcast does not expand any more.
    at timestamptz NOT NULL,
    PRIMARY KEY (broadcast, part, number)
);
