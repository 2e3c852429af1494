-- When a user's address was set, be it the same again: what a relay says of a mail that went out before does not speak against it.
-- Of addresses from before it is not known.
ALTER TABLE carillon.user_settings ADD COLUMN email_set_at timestamptz;
