-- What a summary, or an item that comes alone, needs to know of its items; and which of them fall out of it.

-- Beside the items, as releases that know nothing of it may run meanwhile: an item that they gather has no row here.
CREATE TABLE carillon.digest_details (
    user_id text NOT NULL,
    notification_id uuid NOT NULL,
    type text,
    job_entry text,
    severity text,
    delivery text,
    -- Those that were left when its user's wishes were looked at.
    channels smallint,
    extras jsonb,
    category text,
    collapse_key text,
    -- The job's own; a type's time to live begins with the summary.
    expires_at timestamptz,
    keep_until timestamptz,
    -- Known when its window is taken: `cancelled`, `expired` or `read` if it falls out, `alone` if no other is left. Null:
    -- it waits, or a summary stands for it.
    fate text,
    PRIMARY KEY (user_id, notification_id),
    FOREIGN KEY (user_id, notification_id) REFERENCES carillon.digest_items ON DELETE CASCADE
);
CREATE INDEX digest_details_entry ON carillon.digest_details (job_entry);
-- All items of a job.
CREATE INDEX digest_items_of_job ON carillon.digest_items (org_id, job_id) WHERE job_id IS NOT NULL;

-- As `gather`, but for what was cancelled before it came, which is not gathered (`cancelled`), and for a job id that came
-- before and said something else (`conflict`).
CREATE FUNCTION carillon.gather_detailed(
    item carillon.digest_items, details carillon.digest_details, digest_key text, urgency text, span interval,
    maximum interval, is_sliding boolean, singles integer
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    outcome text;
    is_other boolean;
BEGIN
    IF NOT EXISTS (
        SELECT FROM carillon.digest_items i
        WHERE i.user_id = item.user_id AND i.notification_id = item.notification_id
    ) AND EXISTS (
        SELECT FROM carillon.cancellations c
        WHERE c.org_id = item.org_id
            AND c.job_id = ANY (ARRAY[item.job_id, details.job_entry, split_part(details.job_entry, '/', 2)])
    ) THEN
        RETURN 'cancelled';
    END IF;
    outcome := carillon.gather(item, details.type, digest_key, urgency, span, maximum, is_sliding, singles);
    IF outcome = 'duplicate' THEN
        SELECT (coalesce(d.type, details.type), i.title, i.body, i.data)
            IS DISTINCT FROM (details.type, item.title, item.body, item.data)
        INTO is_other
        FROM carillon.digest_items i
        LEFT JOIN carillon.digest_details d ON d.user_id = i.user_id AND d.notification_id = i.notification_id
        WHERE i.user_id = item.user_id AND i.org_id = item.org_id AND i.job_id = item.job_id;
        RETURN CASE WHEN is_other THEN 'conflict' ELSE 'duplicate' END;
    END IF;
    -- Of a single one no more is needed than what tells it from another with its job's id.
    IF outcome = 'held' OR item.job_id IS NOT NULL THEN
        INSERT INTO carillon.digest_details SELECT details.* ON CONFLICT DO NOTHING;
    END IF;
    RETURN outcome;
END $$;

-- Why something is put off: what waits for the end of quiet hours, whatever it is to do then, is looked at anew when they change.
ALTER TABLE carillon.follow_ups ADD COLUMN reason text;
