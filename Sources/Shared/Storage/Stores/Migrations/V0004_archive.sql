-- Notifications that their users archived. Their rows are tombstones, which clients drop, with a
-- `deleted_at` in the future, so that retention keeps them.
CREATE TABLE carillon.archived (
    user_id text COLLATE "C" NOT NULL,
    notification_id uuid NOT NULL,
    archived_at timestamptz NOT NULL,
    PRIMARY KEY (user_id, notification_id)
);

-- Operators find users by their address.
CREATE INDEX user_settings_email ON carillon.user_settings (lower(email)) WHERE email IS NOT NULL;
