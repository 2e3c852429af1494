-- Waits one second for readers, as `drop_attempt_part` does: everything queues behind it meanwhile,
-- and a dump reads for minutes.
ALTER FUNCTION carillon.make_attempt_parts(date) SET lock_timeout = '1s';

-- A sliding window never gets shorter, even if an item is gathered late, and a window with 10,000
-- items is over. The rest of the function is unchanged, but a function can only be replaced as a
-- whole.
CREATE OR REPLACE FUNCTION carillon.gather(
    item carillon.digest_items, digest_key text, urgency text, span interval, maximum interval, is_sliding boolean,
    singles integer
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
    IF EXISTS (
        SELECT FROM carillon.cancellations c
        WHERE c.org_id = item.org_id
            AND c.job_id = ANY (ARRAY[item.job_id, item.job_entry, split_part(item.job_entry, '/', 2)])
    ) THEN
        RETURN 'cancelled';
    END IF;
    SELECT * INTO known FROM carillon.digest_items i
    WHERE i.user_id = item.user_id AND i.org_id = item.org_id AND i.job_id = item.job_id;
    IF FOUND THEN
        RETURN CASE WHEN (known.type, known.title, known.body, known.data)
            IS DISTINCT FROM (item.type, item.title, item.body, item.data) THEN 'conflict' ELSE 'duplicate' END;
    END IF;
    LOOP
        SELECT * INTO found_digest FROM carillon.digests d
        WHERE d.user_id = item.user_id AND d.org_id = item.org_id AND d.type = item.type AND d.key = digest_key
            AND d.state = 'open'
        FOR UPDATE;
        IF FOUND AND found_digest.due_at > item.gathered_at THEN
            EXIT;
        ELSIF FOUND THEN
            UPDATE carillon.digests SET state = 'closing' WHERE id = found_digest.id;
        ELSE
            INSERT INTO carillon.digests (id, user_id, org_id, type, key, lane, opened_at, due_at, last_at)
            VALUES (item.notification_id, item.user_id, item.org_id, item.type, digest_key, urgency, item.gathered_at,
                item.gathered_at + span, item.gathered_at + greatest(span, maximum))
            ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;
    item.digest_id := found_digest.id;
    item.is_single := found_digest.count < singles;
    INSERT INTO carillon.digest_items SELECT item.* ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN CASE WHEN EXISTS (
            SELECT FROM carillon.digest_items i
            WHERE i.user_id = item.user_id AND i.org_id = item.org_id AND i.job_id = item.job_id
                AND (i.type, i.title, i.body, i.data) IS DISTINCT FROM (item.type, item.title, item.body, item.data)
        ) THEN 'conflict' ELSE 'duplicate' END;
    END IF;
    UPDATE carillon.digests SET
        count = count + 1,
        due_at = CASE
            WHEN count >= 9999 THEN least(due_at, item.gathered_at)
            WHEN is_sliding THEN least(last_at, greatest(due_at, item.gathered_at + span)) ELSE due_at
        END
    WHERE id = found_digest.id;
    RETURN CASE WHEN item.is_single THEN 'single' ELSE 'held' END;
END $$;
