-- Carillon · schedule.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- Replaces the edge function `schedule.ts`. Run it every five minutes with pg_cron or another cron.
-- It enqueues each reminder at most ten minutes before its time in the row's time zone (UTC if
-- PostgreSQL does not know the zone). It marks the row and enqueues the job in one transaction, so
-- a rollback sends nothing, and a second run does nothing.

SET search_path = example_scheduler, public;

WITH clocks AS (
    -- After missed runs, sends the reminders of the last hour late and skips older ones.
    SELECT s.user_id, s.category, s.at_time, s.timezone, coalesce(z.name, 'UTC') AS zone,
        greatest(s.enqueued_until, now() - interval '1 hour') AT TIME ZONE coalesce(z.name, 'UTC') AS clock
    FROM notification_settings s LEFT JOIN pg_timezone_names z ON z.name = s.timezone
    WHERE s.enabled
), moments AS (
    SELECT user_id, category, at_time, timezone,
        (clock::date + (at_time <= clock::time)::int + at_time) AT TIME ZONE zone AS moment
    FROM clocks
), due AS (
    UPDATE notification_settings s
    SET enqueued_until = m.moment, job = 'reminder:' || gen_random_uuid()
    FROM moments m
    WHERE (s.user_id, s.category, s.at_time, s.timezone) = (m.user_id, m.category, m.at_time, m.timezone)
        AND s.enabled AND m.moment > s.enqueued_until AND m.moment < now() + interval '10 minutes'
    RETURNING s.*
)
SELECT carillon.enqueue(jsonb_build_object(
    'id', job,
    'user', user_id,
    'type', 'scheduled_reminder',
    'title', title,
    'url', '/notifications/' || category,
    'data', jsonb_build_object('category', category, 'deeplink', '/notifications/' || category),
    'deliver_at', enqueued_until))
FROM due;
