-- Carillon · unread.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- Selects unread notifications as jobs for the inbox only, at most 1,000: the body of POST
-- /v1/jobs. The job ids derive from the old ids, so running it twice creates no duplicates.

SELECT coalesce(json_agg(json_strip_nulls(json_build_object(
    'id', 'before:' || n.id, 'user', n.user_id, 'org', n.org_id, 'type', n.type, 'severity', n.severity,
    'title', n.title, 'body', n.body, 'data', n.data, 'channels', json_build_array('in_app')))), '[]')
FROM (
    SELECT * FROM notifications
    WHERE read_at IS NULL AND created_at > now() - interval '30 days'
    ORDER BY created_at, id LIMIT 1000) n;
