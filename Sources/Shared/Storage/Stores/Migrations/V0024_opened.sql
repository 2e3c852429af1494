-- Finds notifications that were opened and not read: the app's badge does not count them.
CREATE INDEX notifications_opened ON carillon.notifications (user_id)
    WHERE opened_at IS NOT NULL AND read_at IS NULL AND deleted_at IS NULL AND version > 0;
