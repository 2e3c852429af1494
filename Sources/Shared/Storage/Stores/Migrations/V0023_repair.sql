-- Finds the rows to repair after Redis lost its last seconds.

-- When a notification was handed to a provider's stream; null if that was within 30 s after it was
-- stored, as it was for most. So most changes of a status stay on their page, and the index is small.
ALTER TABLE carillon.notifications ADD COLUMN handed_at timestamptz;
CREATE INDEX notifications_handed ON carillon.notifications (handed_at) WHERE handed_at IS NOT NULL;
