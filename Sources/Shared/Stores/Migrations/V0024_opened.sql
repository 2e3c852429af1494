-- What was opened and not read: it is not counted on the app's icon.
CREATE INDEX notifications_opened ON carillon.notifications (user_id)
    WHERE opened_at IS NOT NULL AND read_at IS NULL AND deleted_at IS NULL AND version > 0;
