-- What decisions rest on and lead to: quiet hours of a type, silenced devices, what is put off, and notes of what was left out.

-- A type's quiet hours in place of the user's; `quiet_off` is none at all.
ALTER TABLE carillon.preferences
    ADD COLUMN quiet_off boolean NOT NULL DEFAULT false,
    ADD COLUMN quiet_start smallint,
    ADD COLUMN quiet_end smallint,
    ADD COLUMN quiet_weekdays smallint;

-- The user's switch; the token stays good.
ALTER TABLE carillon.devices ADD COLUMN silenced boolean NOT NULL DEFAULT false;

-- Why less was done than was asked for.
ALTER TABLE carillon.notifications ADD COLUMN decision text;

-- What is looked at again when its time has come. Whoever takes it moves `due_at` on, and removes the row when all is done.
CREATE TABLE carillon.follow_ups (
    user_id text NOT NULL,
    notification_id uuid NOT NULL,
    kind text NOT NULL,
    due_at timestamptz NOT NULL,
    PRIMARY KEY (user_id, notification_id, kind)
) WITH (fillfactor = 80);
CREATE INDEX follow_ups_due ON carillon.follow_ups (due_at);
