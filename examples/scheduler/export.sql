-- Carillon · export.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- Selects one line of JSON per user, for `gateway import`:
--
--     psql -XAtqf export.sql "$APP_DATABASE" | gateway import -
--
-- Exports each user's 20 most recently seen tokens. Keeps old ones too, because clients register
-- only at sign-in. The newest comes last: of two tokens of one device, the import keeps the later.
-- `environment` is that of the APNs tokens: production, or sandbox if that is your
-- APNS_ENVIRONMENT.

SET search_path = example_scheduler, public;

SELECT jsonb_build_object(
    'user_id', u.user_id,
    'devices', (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'platform', t.platform, 'token', t.token,
            'environment', CASE WHEN t.platform = 'ios' THEN 'production' END,
            'device_id', nullif(left(t.device_id, 255), ''))
            ORDER BY t.last_seen_at), '[]')
        FROM (
            SELECT * FROM user_push_tokens WHERE user_id = u.user_id
            ORDER BY last_seen_at DESC LIMIT 20) t))
    || CASE WHEN s.user_id IS NULL THEN '{}' ELSE jsonb_build_object(
        'settings', jsonb_build_object('zone', s.timezone, 'quiet_hours', CASE
            WHEN s.quiet_start IS NOT NULL AND s.quiet_end IS NOT NULL THEN jsonb_build_object(
                'start', to_char(s.quiet_start, 'HH24:MI'), 'end', to_char(s.quiet_end, 'HH24:MI')) END)) END
FROM (SELECT user_id FROM user_push_tokens UNION SELECT user_id FROM notification_settings) u
LEFT JOIN (SELECT DISTINCT ON (user_id) * FROM notification_settings ORDER BY user_id, category) s
    ON s.user_id = u.user_id
ORDER BY u.user_id;
