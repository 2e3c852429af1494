-- When a device was switched off, so that it can be deleted some time after.

-- Since when a device has been switched off; null for one that is active.
ALTER TABLE carillon.devices ADD COLUMN inactive_since timestamptz;
UPDATE carillon.devices SET inactive_since = now() WHERE NOT active;
CREATE INDEX devices_inactive ON carillon.devices (inactive_since) WHERE inactive_since IS NOT NULL;

CREATE FUNCTION carillon.note_device_switched() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.inactive_since := CASE WHEN NOT NEW.active THEN now() END;
    RETURN NEW;
END $$;
CREATE TRIGGER device_switched BEFORE UPDATE OF active ON carillon.devices
    FOR EACH ROW WHEN (OLD.active IS DISTINCT FROM NEW.active)
    EXECUTE FUNCTION carillon.note_device_switched();
