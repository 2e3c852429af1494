-- Carillon · schedule.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- The rest of the edge function `schedule.ts`. Run it once a day from pg_cron or another cron. It
-- enqueues each reminder for its time in the user's time zone. It marks and enqueues in one
-- transaction, so a rollback notifies no one, and a second run on the same day does nothing.

SET search_path = example_scheduler, public;

WITH due AS (
    UPDATE notification_settings
    SET last_enqueued_on = current_date
    WHERE enabled AND last_enqueued_on IS DISTINCT FROM current_date
    RETURNING user_id, category, at_time, title
)
SELECT carillon.enqueue(jsonb_build_object(
    'id', format('reminder:%s:%s:%s', category, user_id, current_date),
    'user', user_id,
    'type', 'scheduled_reminder',
    'title', title,
    'url', '/notifications/' || category,
    'data', jsonb_build_object('category', category, 'deeplink', '/notifications/' || category),
    'deliver_local', to_char(at_time, 'HH24:MI')))
FROM due;
