-- Jobs that were called off, by their own id, or by that of their entry (`1700000000000-0`, with or without its stream).
-- A job that arrives within 7 days after is stored as cancelled.
CREATE TABLE carillon.cancellations (
    org_id text NOT NULL,
    job_id text NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (org_id, job_id)
);
CREATE INDEX cancellations_at ON carillon.cancellations (at);

-- Still: the same (org, job id, user) is notified once. In this order it also finds all of a job's notifications.
DROP INDEX carillon.notifications_job;
CREATE UNIQUE INDEX notifications_job ON carillon.notifications (org_id, job_id, user_id) WHERE job_id IS NOT NULL;
