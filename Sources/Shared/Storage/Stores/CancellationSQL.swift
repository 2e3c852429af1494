// Carillon · CancellationSQL.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The statements of ``CancellationStore``, and conditions about cancellations for other stores.
enum CancellationSQL {
    /// Whether the job of a row was cancelled, by its id, its entry or its entry's id alone.
    ///
    /// - Parameter row: an alias with `org_id`, `job_id` and `job_entry`.
    static func isCancelled(_ row: String) -> String {
        """
        (SELECT true FROM carillon.cancellations c WHERE c.org_id = \(row).org_id
            AND c.job_id = ANY (ARRAY[\(row).job_id, \(row).job_entry, split_part(\(row).job_entry, '/', 2)]) LIMIT 1)
            IS NOT NULL
        """
    }

    /// "cancel" in ASCII.
    private static let lock: Int64 = 0x6361_6E63_656C

    /// The first statement of every transaction that stores notifications.
    ///
    /// A cancellation commits first, then waits for the transactions that already had the lock,
    /// because they may not see it. A search after that finds everything.
    static let beforeStoring = PostgresStatement("SELECT pg_advisory_xact_lock_shared(\(Self.lock))")

    /// The transactions that have the lock.
    ///
    /// A cancellation polls them instead of taking the lock, because all storing would queue behind
    /// it. $1: transactions to look for; empty for all.
    static let storing = """
        SELECT l.virtualtransaction FROM pg_locks l
        JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
        WHERE l.locktype = 'advisory' AND l.classid = \(Self.lock >> 32) AND l.objid = \(Self.lock & 0xFFFF_FFFF)
            AND l.objsubid = 1 AND l.granted AND (cardinality($1) = 0 OR l.virtualtransaction = ANY ($1))
        """

    /// Records a cancellation; repeating it restarts its retention.
    ///
    /// $1: organisation, $2: names, $3: when.
    static let record = """
        INSERT INTO carillon.cancellations (org_id, job_id, at) SELECT $1, n.name, $3 FROM unnest($2) AS n (name)
        ON CONFLICT (org_id, job_id) DO UPDATE SET at = EXCLUDED.at
        """

    /// The positions of the jobs that were cancelled.
    ///
    /// $1 to $3: organisations, job ids or nulls, entries.
    static let cancelled = """
        SELECT (i.n - 1)::int4 FROM unnest($1, $2, $3) WITH ORDINALITY AS i (org_id, job_id, job_entry, n)
        WHERE EXISTS (SELECT FROM carillon.cancellations) AND \(Self.isCancelled("i"))
        """

    /// $1: organisation, $2: job id, $3: last user, $4: limit.
    static let page = """
        SELECT n.user_id, n.id FROM carillon.notifications n
        WHERE n.org_id = $1 AND n.job_id = $2 AND n.user_id > $3 ORDER BY n.user_id LIMIT $4
        """

    /// $1: organisation, $2: entries with their streams, $3, $4: first and last time of storing,
    /// $5: limit.
    static let ofEntries = """
        SELECT n.user_id, n.id, n.job_entry FROM carillon.notifications n
        WHERE n.stored_at >= $3 AND n.stored_at < $4 AND n.org_id = $1 AND n.job_entry = ANY($2) LIMIT $5
        """

    /// The ids and entries of a job's name that have rows, as far as indexes show them.
    ///
    /// A job may have millions of notifications, so only one of each id is read.
    ///
    /// $1: organisation, $2: entries with their streams, $3: ids, $4 and $5: the least and the
    /// greatest id of the entries' schedules. Rows: each id or entry once.
    static let known = """
        SELECT k.name FROM unnest($3) AS k (name)
        CROSS JOIN LATERAL (
            SELECT n.id FROM carillon.notifications n WHERE n.org_id = $1 AND n.job_id = k.name LIMIT 1
        ) x
        UNION SELECT i.job_entry FROM carillon.digest_items i
        WHERE NOT i.is_single AND i.org_id = $1 AND i.job_entry = ANY($2)
        UNION SELECT b.job_entry FROM carillon.broadcasts b WHERE b.org_id = $1 AND b.job_entry = ANY($2)
        UNION SELECT b.job_id FROM carillon.broadcasts b WHERE b.org_id = $1 AND b.job_id = ANY($3)
        UNION SELECT s.job_id FROM carillon.schedules s
        WHERE s.org_id = $1 AND s.job_id = ANY($3) AND s.cron IS NULL
        UNION SELECT e.name FROM unnest($2) AS e (name)
        CROSS JOIN LATERAL (
            SELECT s.id FROM carillon.schedules s
            WHERE s.id BETWEEN $4 AND $5 AND s.org_id = $1 AND s.source = e.name AND s.cron IS NULL LIMIT 1
        ) w
        """

    /// The entries that have notifications.
    ///
    /// $1 to $4: as in ``ofEntries``. Rows: each entry once.
    static let knownEntries = """
        SELECT DISTINCT n.job_entry FROM carillon.notifications n
        WHERE n.stored_at >= $3 AND n.stored_at < $4 AND n.org_id = $1 AND n.job_entry = ANY($2)
        """

    /// Ends notifications that wait for a provider or a release although their user has read or
    /// opened them, or got their mail.
    ///
    /// $1, $2: users and ids. Rows: the label's columns, status and reason.
    static let endSeen = """
        UPDATE carillon.notifications n
        SET status = 'sent',
            status_reason = CASE WHEN n.read_at IS NOT NULL THEN 'read' WHEN n.opened_at IS NOT NULL THEN 'opened' END,
            sent_via = CASE
                WHEN n.read_at IS NULL AND n.opened_at IS NULL THEN 'email'
                WHEN (n.channels & \(Channels.inApp.rawValue)) <> 0 THEN 'inbox'
                ELSE n.sent_via
            END
        FROM unnest($1, $2) AS k (user_id, id)
        WHERE \(NotificationSQL.isNamed(by: "k")) AND n.status IN ('pending', 'deferred')
            AND (n.read_at IS NOT NULL OR n.opened_at IS NOT NULL OR \(NotificationState.wasMailed))
        RETURNING \(LabelColumns.list), n.status, n.status_reason
        """

    /// Cancels notifications that reached no device and removes them from the inboxes, which are
    /// locked.
    ///
    /// A notification that waits for a provider or a retry may have arrived: it is `in_flight`
    /// until its deliveries settle, unless it expired before any was enqueued. A notification that
    /// has reached a device loses its waiting mail, which may be due after the cancellation is
    /// forgotten. Snoozed notifications do not come back, even if they came back before and were
    /// snoozed again. Outside the inbox its collapse key is removed: the row is not deleted, so
    /// each later notification with the key would read it.
    ///
    /// $1, $2: users and ids, no user twice; $3: when. Rows: the label's columns; for listed
    /// notifications version and unread count.
    static let cancel = Self.cancellation(and: "")

    /// The same, and records the progress of a broadcast.
    ///
    /// $4: broadcast, $5: last user, $6: whether it was the last page.
    static let cancelPage = Self.cancellation(and: BroadcastSQL.withdrawn + ",")

    /// - Parameter step: a further table expression that may read `changed`, with a comma.
    private static func cancellation(and step: String) -> String {
        """
        WITH target AS MATERIALIZED (
            SELECT n.user_id, n.id, n.version > 0 AND n.deleted_at IS NULL AS is_listed, n.read_at IS NULL AS was_unread,
                (\(NotificationState.isQueued) OR n.status = 'failed'
                    OR n.status = 'expired' AND \(NotificationState.wasPushTried)) AND \(NotificationState.mayBePushed)
                OR (n.status <> 'expired' OR \(NotificationState.waitsForMail)) AND \(NotificationState.mayBeMailed(at: "$3"))
                    AS may_be_sent
            FROM unnest($1, $2) AS k (user_id, id)
            JOIN carillon.notifications n ON n.user_id = k.user_id AND n.id = k.id
            WHERE \(NotificationState.isWithdrawable)
            FOR UPDATE OF n
        ),
        changed AS (
            UPDATE carillon.notifications n
            SET status = 'cancelled', sent_via = NULL,
                status_reason = CASE WHEN t.may_be_sent THEN 'in_flight' END,
                deleted_at = CASE WHEN t.is_listed THEN $3 ELSE n.deleted_at END,
                collapse_key = CASE WHEN n.version > 0 THEN n.collapse_key END,
                version = CASE WHEN t.is_listed THEN \(EpochSQL.version(of: "b")) + 1 ELSE n.version END
            FROM target t LEFT JOIN carillon.inboxes b ON b.user_id = t.user_id
            WHERE n.user_id = t.user_id AND n.id = t.id
            RETURNING \(LabelColumns.list), t.is_listed, t.was_unread
        ),
        unsnoozed AS (
            DELETE FROM carillon.schedules s USING unnest($1, $2) AS k (user_id, id)
            JOIN carillon.notifications n ON n.user_id = k.user_id AND n.id = k.id
            WHERE s.user_id = ANY (ARRAY[k.user_id]) AND (\(ScheduleSQL.isSnooze(of: "k.id"))
                OR s.org_id = n.org_id
                    AND s.source = '\(ScheduleStore.snoozeOrigin)' || coalesce(n.job_id, n.job_entry))
        ),
        unmailed AS (
            DELETE FROM carillon.follow_ups f USING unnest($1, $2) AS k (user_id, id)
            WHERE f.user_id = ANY (ARRAY[k.user_id]) AND f.notification_id = k.id
                AND f.kind = '\(FollowUp.email.rawValue)' AND NOT \(FollowUpStore.isUnderWay)
                AND NOT EXISTS (SELECT FROM target t WHERE t.user_id = k.user_id AND t.id = k.id)
            RETURNING f.user_id, f.notification_id
        ),
        skipped AS (
            INSERT INTO carillon.delivery_attempts (at, user_id, notification_id, provider, kind, attempt, outcome, reason)
            SELECT $3::timestamptz, u.user_id, u.notification_id, 'email', 'email', 0, 'skipped', 'cancelled'
            FROM unmailed u
        ),
        \(step)
        raised AS (
            UPDATE carillon.inboxes b
            SET version = \(EpochSQL.version(of: "b")) + 1, total = greatest(b.total - 1, 0),
                unread = greatest(b.unread - c.was_unread::int, 0)
            FROM changed c WHERE c.is_listed AND b.user_id = c.user_id
            RETURNING b.user_id, b.version, b.unread
        )
        SELECT \(LabelColumns.list), r.version, r.unread
        FROM changed n LEFT JOIN raised r ON n.is_listed AND r.user_id = n.user_id
        """
    }

    /// $1: organisation, $2: job ids.
    static let tally = Self.tally("n.org_id = $1 AND n.job_id = ANY($2)")

    /// The same, with those that can still be withdrawn counted separately.
    static let tallyWithOpen = Self.tally(
        "n.org_id = $1 AND n.job_id = ANY($2)", isWithdrawable: NotificationState.isWithdrawable)

    /// $1 to $4: as in ``ofEntries``.
    static let tallyOfEntry = Self.tally(
        "n.stored_at >= $3 AND n.stored_at < $4 AND n.org_id = $1 AND n.job_entry = ANY($2)"
    )

    /// Items that digests hold.
    ///
    /// $1: organisation, $2: job ids.
    static let tallyHeld = Self.tallyHeld("i.org_id = $1 AND i.job_id = ANY($2)")

    /// The same, by the job's entry.
    ///
    /// $1: organisation, $2: entries with their streams.
    static let tallyHeldOfEntry = Self.tallyHeld("i.org_id = $1 AND i.job_entry = ANY($2)")

    /// Held items by the status that they count as.
    ///
    /// A claim of a window holds the lock that a cancellation waits for. So items of a cancelled
    /// job drop out of windows that are not claimed. Items that a claimed window keeps count as
    /// deferred until its summary is stored. If it is not stored, the next claim drops them. A lone
    /// item has its own notification once it is stored.
    private static func tallyHeld(_ condition: String) -> String {
        """
        SELECT s.status, false, s.status = 'deferred', count(*) FROM (
            SELECT CASE
                WHEN i.fate = '\(DigestStore.Fate.read.rawValue)' THEN 'suppressed'
                WHEN i.fate <> '\(DigestStore.Fate.alone.rawValue)' THEN i.fate
                WHEN (\(DigestSQL.isWaiting("d"))) IS NOT TRUE THEN 'sent'
                WHEN NOT \(DigestSQL.isClaimed("d")) AND \(Self.isCancelled("i")) THEN 'cancelled'
                ELSE 'deferred'
            END AS status
            FROM carillon.digest_items i LEFT JOIN carillon.digests d ON d.id = i.digest_id
            WHERE NOT i.is_single AND \(condition)
                AND (i.fate IS DISTINCT FROM '\(DigestStore.Fate.alone.rawValue)' OR \(DigestSQL.isClaimed("d")))
        ) s GROUP BY 1, 3
        """
    }

    /// Rows: status, whether a provider may have it, whether it can still be withdrawn, whether the
    /// user of a failed or expired one has it, and the progress counts.
    private static func tally(_ condition: String, isWithdrawable: String = "false") -> String {
        """
        SELECT n.status, (\(NotificationState.isCancelledInFlight)) IS TRUE, (\(isWithdrawable)) IS TRUE,
            \(NotificationState.isReached) IS TRUE, \(Reach.columns)
        FROM carillon.notifications n WHERE \(condition) GROUP BY 1, 2, 3, 4
        """
    }
}
