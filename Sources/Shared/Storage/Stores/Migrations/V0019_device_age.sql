-- For clients of other systems: when a device was first registered, and quiet hours that are
-- switched off.

-- When the user first registered the device; null means `registered_at`.
ALTER TABLE carillon.devices ADD COLUMN created_at timestamptz;

-- The times stay for when the user switches quiet hours on again.
ALTER TABLE carillon.user_settings ADD COLUMN quiet_off boolean NOT NULL DEFAULT false;
