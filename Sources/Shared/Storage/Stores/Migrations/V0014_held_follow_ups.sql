-- What a dispatcher looks at right now is told from what waits, so that a change of quiet hours does not hand it out twice.

ALTER TABLE carillon.follow_ups ADD COLUMN held boolean NOT NULL DEFAULT false;
