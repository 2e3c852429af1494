-- Carillon · prepare.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- Prepares the app's table for schedule.sql. Run it once, when `schedule.ts` has stopped: reminders
-- from this moment on are Carillon's.

SET search_path = example_scheduler, public;

ALTER TABLE notification_settings
    -- The reminders up to this moment are enqueued.
    ADD COLUMN enqueued_until timestamptz NOT NULL DEFAULT now(),
    -- The id of the last one's job.
    ADD COLUMN job text;

-- A change takes the reminder back: the app's webhook cancels the job that leaves the row, and
-- schedule.sql enqueues the reminder again.
CREATE FUNCTION reset_reminder() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.enqueued_until := now();
    NEW.job := NULL;
    RETURN NEW;
END $$;

CREATE TRIGGER reset_reminder BEFORE UPDATE OF enabled, at_time, timezone, title ON notification_settings
    FOR EACH ROW
    WHEN ((OLD.enabled, OLD.at_time, OLD.timezone, OLD.title)
        IS DISTINCT FROM (NEW.enabled, NEW.at_time, NEW.timezone, NEW.title))
    EXECUTE FUNCTION reset_reminder();
