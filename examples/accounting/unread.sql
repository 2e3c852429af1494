-- Carillon · unread.sql
-- SPDX-License-Identifier: Apache-2.0
--
-- Selects unread notifications as jobs for the inbox only, oldest first. Each line is the body of a
-- POST /v1/jobs: an array of at most 1,000 jobs. The job ids derive from the old ids, so running it
-- twice creates no duplicates.

SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
    'id', 'before:' || n.id, 'user', n.user_id, 'org', n.org_id, 'type', n.type, 'severity', n.severity,
    'title', n.title, 'body', n.body, 'channels', jsonb_build_array('in_app')))
    -- Add the data after removing nulls, because it may contain nulls of its own.
    || CASE WHEN jsonb_typeof(n.data) <> 'null' THEN jsonb_build_object('data', n.data) ELSE '{}' END
    ORDER BY n.number)
FROM (
    SELECT *, row_number() OVER (ORDER BY created_at, id) - 1 AS number FROM notifications
    WHERE read_at IS NULL) n
GROUP BY n.number / 1000
ORDER BY n.number / 1000;
