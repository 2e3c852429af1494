-- The device by which a notification was first sent, so that what its user does about it can be told by platform.

ALTER TABLE carillon.notifications ADD COLUMN sent_device uuid;
