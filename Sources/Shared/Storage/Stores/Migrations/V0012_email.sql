-- Whether mail to a user's address comes back, as the relay said: none is sent there until an address is set again.
ALTER TABLE carillon.user_settings
    ADD COLUMN email_invalid_at timestamptz,
    ADD COLUMN email_invalid_reason text;
