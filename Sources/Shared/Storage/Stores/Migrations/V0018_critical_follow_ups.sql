-- What is critical of what was put off, so that it is found before any amount of the rest. Rows from before count as the rest.

ALTER TABLE carillon.follow_ups ADD COLUMN critical boolean NOT NULL DEFAULT false;
CREATE INDEX follow_ups_critical_due ON carillon.follow_ups (due_at) WHERE critical;
