-- What is gathered before its user hears of it, and the index by which a newer notification finds those that it replaces.

-- A window that gathers. Whoever flushes it moves `due_at` on, and removes the row when the summary is on its way.
CREATE TABLE carillon.digests (
    id uuid PRIMARY KEY,
    user_id text NOT NULL,
    org_id text NOT NULL,
    type text NOT NULL,
    key text NOT NULL,
    lane text NOT NULL,
    -- `open` takes items; `closing` takes none, so that late ones open the next window.
    state text NOT NULL DEFAULT 'open',
    opened_at timestamptz NOT NULL,
    due_at timestamptz NOT NULL,
    -- A sliding window ends here at the latest.
    last_at timestamptz NOT NULL,
    count integer NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX digests_open ON carillon.digests (user_id, org_id, type, key) WHERE state = 'open';
CREATE INDEX digests_due ON carillon.digests (due_at);

-- What came for a digest. A single one is a notification of its own; the others are held for the summary.
CREATE TABLE carillon.digest_items (
    user_id text NOT NULL,
    notification_id uuid NOT NULL,
    digest_id uuid NOT NULL,
    is_single boolean NOT NULL,
    org_id text NOT NULL,
    job_id text,
    title text NOT NULL,
    body text NOT NULL,
    data jsonb,
    entity_type text,
    entity_id text,
    gathered_at timestamptz NOT NULL,
    PRIMARY KEY (user_id, notification_id)
);
CREATE INDEX digest_items_digest ON carillon.digest_items (digest_id, notification_id);
CREATE UNIQUE INDEX digest_items_job ON carillon.digest_items (user_id, org_id, job_id) WHERE job_id IS NOT NULL;
CREATE INDEX digest_items_gathered ON carillon.digest_items (gathered_at);

-- Adds an item to the open window of its key, and opens one if there is none or its time is over.
-- Returns `single`, `held` or, for a job id that came before, `duplicate`; the same for an item that was added before.
CREATE FUNCTION carillon.gather(
    item carillon.digest_items, type_name text, digest_key text, urgency text, span interval, maximum interval,
    is_sliding boolean, singles integer
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    known carillon.digest_items;
    found_digest carillon.digests;
BEGIN
    SELECT * INTO known FROM carillon.digest_items i
    WHERE i.user_id = item.user_id AND i.notification_id = item.notification_id;
    IF FOUND THEN
        RETURN CASE WHEN known.is_single THEN 'single' ELSE 'held' END;
    END IF;
    LOOP
        SELECT * INTO found_digest FROM carillon.digests d
        WHERE d.user_id = item.user_id AND d.org_id = item.org_id AND d.type = type_name AND d.key = digest_key
            AND d.state = 'open'
        FOR UPDATE;
        IF FOUND AND found_digest.due_at > item.gathered_at THEN
            EXIT;
        ELSIF FOUND THEN
            UPDATE carillon.digests SET state = 'closing' WHERE id = found_digest.id;
        ELSE
            INSERT INTO carillon.digests (id, user_id, org_id, type, key, lane, opened_at, due_at, last_at)
            VALUES (item.notification_id, item.user_id, item.org_id, type_name, digest_key, urgency, item.gathered_at,
                item.gathered_at + span, item.gathered_at + greatest(span, maximum))
            ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;
    item.digest_id := found_digest.id;
    item.is_single := found_digest.count < singles;
    INSERT INTO carillon.digest_items SELECT item.* ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN 'duplicate';
    END IF;
    UPDATE carillon.digests SET
        count = count + 1,
        due_at = CASE WHEN is_sliding THEN least(last_at, item.gathered_at + span) ELSE due_at END
    WHERE id = found_digest.id;
    RETURN CASE WHEN item.is_single THEN 'single' ELSE 'held' END;
END $$;

-- A newer notification finds those with its collapse key.
CREATE INDEX notifications_collapse ON carillon.notifications (user_id, collapse_key)
    WHERE collapse_key IS NOT NULL AND deleted_at IS NULL;
