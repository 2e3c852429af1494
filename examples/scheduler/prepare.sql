-- Carillon · prepare.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- Prepares the app's table for schedule.sql. Run it once, after you have stopped `schedule.ts`:
-- Carillon sends the reminders from then on.

SET search_path = example_scheduler, public;

ALTER TABLE notification_settings
    -- Reminders up to this time are enqueued.
    ADD COLUMN enqueued_until timestamptz NOT NULL DEFAULT now(),
    -- The job id of the last reminder.
    ADD COLUMN job text;

-- A change of a row clears its job id. The app's webhook cancels that job, and schedule.sql
-- enqueues the reminder again.
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
