-- What the calls about users need: topics, when a user was last here, and e-mail switched off as a whole.

-- Who wants what is sent to a topic.
CREATE TABLE carillon.subscriptions (
    topic text NOT NULL,
    user_id text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, user_id)
);
CREATE INDEX subscriptions_user ON carillon.subscriptions (user_id, topic);

-- When the user's last socket closed.
ALTER TABLE carillon.users ADD COLUMN last_seen timestamptz;

-- Refuses e-mail of every type that is not required; set by one-click unsubscribe.
ALTER TABLE carillon.user_settings ADD COLUMN email_opted_out boolean NOT NULL DEFAULT false;
