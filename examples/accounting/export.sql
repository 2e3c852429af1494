-- Carillon · export.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- Selects one line of JSON per user, for `gateway import`:
--
--     psql -XAtqf export.sql "$APP_DATABASE" | gateway import -
--
-- All tokens are FCM tokens. Exports each user's 20 most recently used devices. The newest comes
-- last: of two tokens of one device, the import keeps the later.

SELECT json_build_object(
    'user_id', u.id,
    'settings', json_build_object('email', nullif(u.email, '')),
    'devices', (
        SELECT coalesce(json_agg(json_build_object(
            'platform', d.platform, 'provider', 'fcm', 'token', d.fcm_token,
            'device_id', nullif(left(d.device_id, 255), ''))
            ORDER BY d.last_used_at), '[]')
        FROM (SELECT * FROM push_devices WHERE user_id = u.id ORDER BY last_used_at DESC LIMIT 20) d),
    'preferences', (
        SELECT coalesce(json_agg(json_build_object(
            'type', p.notification_type, 'in_app', p.in_app_enabled, 'push', p.push_enabled,
            'quiet_hours', CASE WHEN p.quiet_hours_start IS NOT NULL AND p.quiet_hours_end IS NOT NULL THEN
                json_build_object('start', to_char(p.quiet_hours_start, 'HH24:MI'),
                                  'end', to_char(p.quiet_hours_end, 'HH24:MI')) END)), '[]')
        FROM notification_preferences p WHERE p.user_id = u.id))
FROM users u
ORDER BY u.id;
