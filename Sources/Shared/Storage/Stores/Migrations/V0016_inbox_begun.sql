-- When an inbox was begun, so that one which was erased and begun anew is told from its predecessor at the same version.
-- Inboxes from before have the moment of this script.
ALTER TABLE carillon.inboxes ADD COLUMN begun_at timestamptz NOT NULL DEFAULT now();
