-- Carillon · unread.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- What users have not read yet, as jobs for the inbox alone, 1,000 at a time: the body of POST /v1/jobs. Their ids are made
-- of the old ones, so that a second time brings nothing twice.

SELECT coalesce(json_agg(json_strip_nulls(json_build_object(
    'id', 'before:' || n.id, 'user', n.user_id, 'org', n.org_id, 'type', n.type, 'severity', n.severity,
    'title', n.title, 'body', n.body, 'data', n.data, 'channels', json_build_array('in_app')))), '[]')
FROM (
    SELECT * FROM notifications
    WHERE read_at IS NULL AND created_at > now() - interval '30 days'
    ORDER BY created_at, id LIMIT 1000) n;
