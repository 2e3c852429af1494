-- Carillon · export.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- Selects one line of JSON per user, for `gateway import`:
--
--     psql -XAtqf export.sql "$APP_DATABASE" | gateway import -
--
-- `environment` is that of the APNs tokens: production, or sandbox if APNS_PRODUCTION is false. The
-- newest device comes last: of two tokens of one device, the import keeps the later. Empty texts
-- become null and numbers become text, because the import refuses both.

SELECT json_build_object(
    'user_id', u.id::text,
    'settings', json_build_object('zone', nullif(u.timezone, ''), 'email', nullif(u.email, '')),
    'devices', (
        SELECT coalesce(json_agg(device ORDER BY date_created), '[]')
        FROM (
            SELECT json_build_object(
                'platform', 'ios', 'environment', 'production', 'token', registration_id,
                'device_id', nullif(left(device_id::text, 255), ''),
                'name', nullif(left(name, 255), '')) AS device, date_created
            FROM push_notifications_apnsdevice WHERE user_id = u.id AND active
            UNION ALL
            SELECT json_build_object(
                'platform', 'android', 'token', registration_id,
                'device_id', nullif(left(device_id::text, 255), ''),
                'name', nullif(left(name, 255), '')), date_created
            FROM push_notifications_gcmdevice WHERE user_id = u.id AND active
            ORDER BY date_created DESC LIMIT 20) devices),
    'preferences', coalesce((
        SELECT json_build_array(
            json_build_object('type', 'task_due_soon', 'push', p.task_due_soon),
            json_build_object('type', 'task_overdue', 'push', p.task_overdue),
            json_build_object('type', 'task_completed', 'push', p.task_completed),
            json_build_object('type', 'task_assigned', 'push', p.task_assigned),
            json_build_object('type', 'task_digest', 'push', p.daily_digest))
        FROM notifications_notificationpreference p WHERE p.user_id = u.id), '[]'))
FROM auth_user u
ORDER BY u.id;
