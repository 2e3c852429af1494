// Carillon · DeliveryStore.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// The facts that sending needs, and the record of attempts.
package struct DeliveryStore: Sendable {
    /// The current facts of one delivery; a class, as copying so many texts would cost more than
    /// sending.
    ///
    /// Contains only the fields of notification and device that messages use.
    package final class Facts: Sendable {
        package let notification: Notification
        package let device: Device
        package let isReplaced: Bool
        package let preferences: RecipientStore.Preferences
        /// The number of unread, unopened notifications, and the inbox version of that count.
        package let unseen: Int32
        package let inboxVersion: Int64
        /// Whether this device accepted this notification before.
        package let wasAccepted: Bool
        /// Whether the job was cancelled.
        package let isCancelled: Bool

        fileprivate init(_ row: PostgresRow, wasAccepted: Bool) throws(PostgresError) {
            let first = 6 + PreferenceColumns.count
            self.notification = try NotificationColumns.message.read(row, at: first)
            self.device = try DeviceColumns.read(row, at: first + NotificationColumns.message.count)
            self.isReplaced = try row.bool(1)
            self.preferences = try PreferenceColumns.read(row, at: 6)
            self.unseen = try row.int4(2)
            self.inboxVersion = try row.int8(3)
            self.wasAccepted = wasAccepted
            self.isCancelled = try row.bool(5)
        }
    }

    /// The outcome of an attempt.
    package enum Outcome: String, Sendable, CaseIterable {
        /// The provider has the message.
        case accepted
        /// A retry follows.
        case retry
        case failed
        /// The message was not sent.
        case skipped
    }

    /// One row of the audit.
    package struct Attempt: Sendable {
        var at: Timestamp
        var user: String
        var notification: NotificationID?
        var device: DeviceID?
        var provider: Provider
        /// `push`, `email`, `retract`, `token` for the change of a token, or ``AuditStep/kind``.
        var kind: String
        var attempt: Int
        var outcome: Outcome
        var reason: String?
        var providerID: String?
        var milliseconds: Int32?

        package init(
            at: Timestamp,
            user: String,
            notification: NotificationID?,
            device: DeviceID?,
            provider: Provider,
            kind: String,
            attempt: Int,
            outcome: Outcome,
            reason: String? = nil,
            providerID: String? = nil,
            milliseconds: Int32? = nil
        ) {
            self.at = at
            self.user = user
            self.notification = notification
            self.device = device
            self.provider = provider
            self.kind = kind
            self.attempt = attempt
            self.outcome = outcome
            self.reason = reason
            self.providerID = providerID
            self.milliseconds = milliseconds
        }
    }

    /// All changes of a batch of answers.
    package struct Settlement: Sendable {
        package var attempts: [Attempt] = []
        /// Deliveries that a provider accepted, all of them mail or all of them pushes.
        package var accepted: [(key: NotificationKey, via: String, device: DeviceID)] = []
        /// Devices and mailboxes that were not reached.
        ///
        /// A push fails its notification once no other device may get it, mail once no device may.
        package var failed: [(key: NotificationKey, reason: String, isPush: Bool)] = []
        /// Obsolete deliveries and their reasons; a notification ends once none of its deliveries
        /// is in flight.
        package var obsolete: [(key: NotificationKey, reason: String)] = []
        /// Mail and attention calls that were not sent.
        ///
        /// They end the notification if its push was obsolete too. `hasFailed` is false if the user
        /// or the type did not want the mail or call.
        package var unsentSecondary: [(key: NotificationKey, reason: String, hasFailed: Bool)] = []
        /// Notifications outside the inbox that get no push although it was deferred or enqueued.
        ///
        /// They take the outcome of their mail, also of mail that is still to come. `status`
        /// applies if their mail did not go out.
        package var leftToMail: [(key: NotificationKey, reason: String, status: NotificationStatus)] = []
        /// Finished mail and attention calls, which are no longer remembered as enqueued.
        package var finishedFollowUps: [(key: NotificationKey, kind: FollowUp, isAccepted: Bool)] = []
        /// Addresses that reject mail, with the time of sending: an address set later stays.
        package var deadAddresses: [(user: String, address: String, reason: String, at: Timestamp)] = []
        /// Devices with a dead token, with the time of the evidence: a device with another token or
        /// a later registration stays active.
        package var deadTokens: [(device: DeviceID, token: String, reason: String, evidence: Timestamp)] = []

        package init() {}

        package mutating func add(_ other: Settlement) {
            self.attempts += other.attempts
            self.accepted += other.accepted
            self.failed += other.failed
            self.obsolete += other.obsolete
            self.unsentSecondary += other.unsentSecondary
            self.leftToMail += other.leftToMail
            self.finishedFollowUps += other.finishedFollowUps
            self.deadAddresses += other.deadAddresses
            self.deadTokens += other.deadTokens
        }
    }

    /// The devices, addresses and notifications that a settlement switched off or ended.
    package struct Effects: Sendable {
        /// Devices that were switched off; those registered since the evidence are not.
        package var devices: Set<DeviceID> = []
        /// Users whose e-mail addresses were invalidated; those set since are not.
        package var addresses: Set<ExactText> = []
        /// Notifications that ended as obsolete.
        package var ended: [EndedNotification] = []

        package mutating func add(_ other: Effects) {
            self.devices.formUnion(other.devices)
            self.addresses.formUnion(other.addresses)
            self.ended += other.ended
        }
    }

    let pool: PostgresPool

    /// The facts of deliveries, in order; nil if the notification or the device is gone.
    ///
    /// All deliveries go to devices, or all to e-mail addresses (``Device/emailAddress``).
    ///
    /// - Parameter categories: the category of each type, for its preferences.
    package func facts(
        _ deliveries: [(key: NotificationKey, device: DeviceID, isRepeat: Bool)],
        categories: [(type: String, category: String)] = []
    ) async throws(PostgresError) -> [Facts?] {
        guard !deliveries.isEmpty else { return [] }
        let result = try await self.pool.query(
            PostgresStatement(
                deliveries[0].device == Device.emailAddress ? DeliverySQL.mailFacts : DeliverySQL.facts,
                .keys(
                    deliveries.map(\.key), .ids(deliveries.map(\.device)), .bools(deliveries.map(\.isRepeat)),
                    .texts(categories.map(\.type)), .texts(categories.map { PreferenceKey.category($0.category) }))))
        let accepted = try await self.alreadyAccepted(deliveries, in: result)
        var facts = [Facts?](repeating: nil, count: deliveries.count)
        for row in result {
            let position = try row.position(in: facts.count)
            facts[position] = try Facts(row, wasAccepted: accepted.contains(position))
        }
        return facts
    }

    /// The positions of the deliveries that their devices have accepted.
    ///
    /// Most batches of pushes are first deliveries only, for which the audit is not read.
    ///
    /// - Parameter result: the rows of ``DeliverySQL/facts``.
    private func alreadyAccepted(
        _ deliveries: [(key: NotificationKey, device: DeviceID, isRepeat: Bool)],
        in result: PostgresResult
    ) async throws(PostgresError) -> Set<Int> {
        var positions: [Int] = []
        var earliest: Timestamp?
        for row in result {
            guard let moment = try row.optionalTimestamp(4) else { continue }
            positions.append(try row.position(in: deliveries.count))
            earliest = min(earliest ?? moment, moment)
        }
        guard !positions.isEmpty else { return [] }
        let accepted = try await self.pool.query(
            DeliverySQL.alreadyAccepted, .ids(positions.map { deliveries[$0].key.id }),
            .ids(positions.map { deliveries[$0].device }), .timestamp(earliest))
        return Set(try accepted.map { (row) throws(PostgresError) in positions[try row.position(in: positions.count)] })
    }

    /// The reasons for which these pushes have failed for their devices, in order; nil for one that
    /// has not failed.
    package func failures(
        of pushes: [(key: NotificationKey, device: DeviceID)]
    ) async throws(PostgresError) -> [String?] {
        guard !pushes.isEmpty else { return [] }
        let result = try await self.pool.query(
            PostgresStatement(DeliverySQL.failedPushes, .keys(pushes.map(\.key), .ids(pushes.map(\.device)))))
        var failures = [String?](repeating: nil, count: pushes.count)
        for row in result {
            failures[try row.position(in: failures.count)] = try row.text(1)
        }
        return failures
    }

    /// Records answers in one transaction.
    ///
    /// - Returns: the devices, addresses and notifications that it switched off or ended.
    @discardableResult
    package func settle(_ settlement: Settlement) async throws(PostgresError) -> Effects {
        var statements: [PostgresStatement] = []
        /// Adds a statement with columns of rows; returns its index, or nil if there are no rows.
        @discardableResult
        func add<Row>(_ sql: String, _ rows: [Row], _ columns: ([Row]) -> [PostgresValue]) -> Int? {
            guard !rows.isEmpty else { return nil }
            statements.append(PostgresStatement(sql, columns(rows)))
            return statements.count - 1
        }
        add(DeliverySQL.attempts, settlement.attempts, Self.columns)
        let isMail = settlement.accepted.first?.via == Provider.email.rawValue
        add(DeliverySQL.lock, Self.locked(settlement, isMail: isMail)) { .keys($0) }
        // Rows that are not locked above are sorted, so that two settlements do not deadlock.
        let accepted = NotificationSQL.lockOrder(settlement.accepted, by: { $0.key })
        add(isMail ? DeliverySQL.acceptedMail : DeliverySQL.acceptedPushes, accepted) {
            .keys($0.map(\.key), .texts($0.map(\.via)), .ids($0.map(\.device)))
        }
        add(DeliverySQL.failed, settlement.failed) {
            .keys($0.map(\.key), .texts($0.map(\.reason)), .bools($0.map(\.isPush)))
        }
        let deadAddresses = settlement.deadAddresses.sorted { ExactText($0.user) < ExactText($1.user) }
        let addresses = add(DeliverySQL.deadAddresses, deadAddresses) {
            [.texts($0.map(\.user)), .texts($0.map(\.address)), .texts($0.map(\.reason)), .timestamps($0.map(\.at))]
        }
        let deadTokens = settlement.deadTokens.sorted { $0.device < $1.device }
        let devices = add(DeliverySQL.deadTokens, deadTokens) {
            [
                .ids($0.map(\.device)), .texts($0.map(\.token)), .texts($0.map(\.reason)),
                .timestamps($0.map(\.evidence)),
            ]
        }
        let finished = NotificationSQL.lockOrder(settlement.finishedFollowUps, by: { $0.key })
        add(FollowUpStore.end, finished) {
            .keys($0.map(\.key), .texts($0.map(\.kind.rawValue)), .bools($0.map(\.isAccepted)))
        }
        // After the end of mail, or it would wait for that mail.
        let leftToMail = add(DeliverySQL.leftToMail, settlement.leftToMail) {
            .keys($0.map(\.key), .texts($0.map(\.reason)), .texts($0.map(\.status.rawValue)))
        }
        let obsolete = settlement.obsolete.map {
            (key: $0.key, reason: $0.reason, hasFailed: $0.reason == Reason.noDevice.rawValue)
        }
        let dropped = add(DeliverySQL.dropped, obsolete + settlement.unsentSecondary) { rows in
            .keys(
                rows.map(\.key), .texts(rows.map(\.reason)), .bools(rows.indices.map { $0 >= obsolete.count }),
                .bools(rows.map(\.hasFailed)))
        }
        // Last, so that it sees cancellations that held the locks.
        let unsent = settlement.attempts.filter { $0.outcome != .accepted }
            .compactMap { attempt in attempt.notification.map { NotificationKey(user: attempt.user, id: $0) } }
        add(DeliverySQL.stopped, unsent.sorted()) { .keys($0) }
        var effects = Effects()
        guard !statements.isEmpty else { return effects }
        let results = try await self.pool.run(statements)
        if let addresses {
            for row in results[addresses] { effects.addresses.insert(ExactText(try row.text(0))) }
        }
        if let devices {
            for row in results[devices] { effects.devices.insert(try row.id(0)) }
        }
        for index in [dropped, leftToMail] {
            if let index { effects.ended += try EndedNotification.read(results[index]) }
        }
        return effects
    }

    /// The notifications that a settlement locks, because it may end them.
    ///
    /// The locks are taken in one order, and the statements after them see what others have
    /// committed.
    ///
    /// Another dispatcher may be dropping the pushes that mail depends on, or releasing a deferred
    /// notification whose mail fails. Accepted pushes alone need no lock.
    private static func locked(_ settlement: Settlement, isMail: Bool) -> [NotificationKey] {
        var keys = settlement.failed.map(\.key)
        keys += settlement.leftToMail.map(\.key)
        keys += settlement.obsolete.map(\.key)
        keys += settlement.unsentSecondary.map(\.key)
        if isMail || !keys.isEmpty { keys += settlement.accepted.map(\.key) }
        return keys
    }

    private static func columns(_ attempts: [Attempt]) -> [PostgresValue] {
        [
            .timestamps(attempts.map(\.at)), .texts(attempts.map(\.user)),
            .optionalIDs(attempts.map(\.notification)), .optionalIDs(attempts.map(\.device)),
            .texts(attempts.map(\.provider.rawValue)), .texts(attempts.map(\.kind)),
            .int4s(clamping: attempts.map(\.attempt)), .texts(attempts.map(\.outcome.rawValue)),
            .optionalTexts(attempts.map(\.reason)), .optionalTexts(attempts.map(\.providerID)),
            .int4s(clamping: attempts.map { $0.milliseconds.map { Int($0) } }),
        ]
    }

    /// The devices that got the newest 1,000 of these notifications by push, still belong to the
    /// user and can remove them: at most a thousand, those of the newest notifications first.
    ///
    /// Browsers cannot: Firefox ends a subscription whose pushes show nothing. An FCM topic also
    /// stands for devices whose users have not read the notification.
    package func holders(
        user: String,
        of ids: [NotificationID]
    ) async throws(PostgresError) -> [(notification: NotificationID, device: DeviceID, provider: Provider)] {
        let newest = ids.sorted(by: >).prefix(1_000)
        guard let oldest = newest.last else { return [] }
        // Attempts are never older than the notification, so earlier partitions of the audit are
        // skipped; a day is for clocks that differ.
        let since = Timestamp(milliseconds: oldest.milliseconds) - .seconds(86_400)
        let result = try await self.pool.query(
            """
            SELECT DISTINCT a.notification_id, a.device_id, d.provider
            FROM carillon.delivery_attempts a JOIN carillon.devices d ON d.id = a.device_id
            WHERE a.notification_id = ANY($2) AND a.at >= $3 AND a.kind = 'push' AND a.outcome = 'accepted'
                AND d.active AND d.user_id = $1 AND d.provider <> 'webpush'
                AND NOT (d.provider = 'fcm' AND (d.platform = 'web' OR starts_with(d.token, '\(Device.topicPrefix)')))
            ORDER BY a.notification_id DESC
            LIMIT 1000
            """,
            .text(user), .ids(Array(newest)), .timestamp(since))
        var holders: [(notification: NotificationID, device: DeviceID, provider: Provider)] = []
        for row in result {
            guard let provider = Provider(rawValue: try row.text(2)) else { continue }
            holders.append((try row.id(0), try row.id(1), provider))
        }
        return holders
    }

    /// Records notifications that no socket confirmed in time, at most once an hour each.
    package func recordUnproven(
        _ keys: [NotificationKey],
        at moment: Timestamp
    ) async throws(PostgresError) {
        guard !keys.isEmpty else { return }
        try await self.pool.query(PostgresStatement(DeliverySQL.unproven, .keys(keys, .timestamp(moment))))
    }

    /// Creates the audit's partitions of today and the next seven days.
    ///
    /// A day that already has rows in the default partition gets none of its own. For each new
    /// partition, PostgreSQL reads the whole default partition while nothing can be added to the
    /// audit, so each has a transaction of its own.
    ///
    /// - Throws: ``PostgresError`` with SQLSTATE 55P03 if the audit is read for over a second.
    package func makeAttemptPartitions() async throws(PostgresError) {
        for row in try await self.pool.query(DeliverySQL.missingPartitions) {
            let statement = PostgresStatement(try row.text(0))
            do throws(PostgresError) {
                try await self.pool.run(
                    [PostgresStatement("SELECT set_config('lock_timeout', '1s', true)"), statement],
                    timeout: .seconds(60))
            } catch  where error.sqlState == "23514" || error.sqlState == "42P07" {
                // The day has rows by now, or another dispatcher was faster.
                continue
            }
        }
    }

    /// Whether a row of the audit from the last day, or from a day to come, is in the default
    /// partition.
    package func hasStrayAttempts() async throws(PostgresError) -> Bool {
        try await self.pool.query(
            "SELECT EXISTS (SELECT FROM carillon.delivery_attempts_default WHERE at > now() - interval '1 day')"
        ).first?.bool(0) ?? false
    }
}

extension DeliveryStore {
    /// A push that was enqueued for a device and has no end in the audit.
    package struct Lost: Sendable {
        package let notification: NotificationID
        package let user: String
        package let lane: Lane
        package let device: Device
    }

    /// Finds pushes that Redis may have lost although their notifications count as sent or failed,
    /// because of another device or the mail.
    ///
    /// Inspects one page of notifications, and finds two kinds of devices: those whose attempts did
    /// not end the push, and those without an attempt that were registered when the push was
    /// enqueued, if other devices were tried or the mail was faster.
    ///
    /// - Parameters:
    ///   - since: the earliest time of enqueueing.
    ///   - until: the latest time of enqueueing.
    ///   - cursor: the end of the previous page; ``RepairCursor/init(_:)`` for the first page.
    ///   - now: leaves out notifications that have expired by then.
    ///   - limit: the number of notifications whose attempts to inspect.
    /// - Returns: the pushes and the end of the page; nil if nothing was left to inspect.
    package func lost(
        handedOnSince since: Timestamp,
        until: Timestamp,
        after cursor: RepairCursor,
        now: Timestamp,
        limit: Int
    ) async throws(PostgresError) -> (lost: [Lost], last: RepairCursor?) {
        let result = try await self.pool.query(
            Self.lost, .timestamp(since), .timestamp(until), .timestamp(cursor.moment), .id(cursor.id), .timestamp(now),
            .int4(clamping: limit))
        var lost: [Lost] = []
        var last: RepairCursor?
        for row in result {
            let id = try row.id(1)
            last = RepairCursor(try row.timestamp(0), id)
            guard !row.isNull(4) else { continue }
            lost.append(
                Lost(
                    notification: id,
                    user: try row.text(2),
                    lane: Lane(rawValue: try row.text(3)) ?? .normal,
                    device: try DeviceColumns.read(row, at: 4)
                )
            )
        }
        return (lost, last)
    }

    /// $1 and $2: first and last time of enqueueing, $3 and $4: the cursor, $5: now, $6: number of
    /// notifications.
    ///
    /// The page is chosen before its attempts are read, so that pages cost much the same; most
    /// notifications drop out by their status. A notification without a lost push is a row without
    /// a device. Only attempts since the cursor (with a margin for clocks) are read, so that older
    /// partitions are not. Pushes that wait for quiet hours are in PostgreSQL anyway.
    ///
    /// Outside the inbox, accepted mail does not wait for the push. If a cap or quiet hours held
    /// the push back, there is a `decision`. If it was dropped before the mail was accepted, the
    /// gate refuses it again, unless its user has opted in since.
    private static let lost = """
        WITH page AS MATERIALIZED (
            SELECT n.moment, n.id, n.user_id, n.lane,
                n.status = 'sent' AND (n.sent_via <> 'email' OR (n.channels & \(Channels.inApp.rawValue)) = 0
                    AND n.decision IS NULL AND n.status_reason IS NULL) AS was_pushed
            FROM (\(SweepStore.handedOn)) n
            WHERE n.moment >= $3::timestamptz AND (n.moment, n.id) > ($3::timestamptz, $4::uuid)
                AND (n.channels & \(Channels.push.rawValue)) <> 0 AND n.read_at IS NULL AND n.deleted_at IS NULL
                AND n.replaced_by IS NULL AND (n.expires_at IS NULL OR n.expires_at > $5::timestamptz)
                AND (n.status = 'failed'
                    OR n.status = 'sent' AND n.sent_via NOT IN ('inbox', 'socket', 'summary'))
            ORDER BY n.moment, n.id LIMIT $6
        )
        SELECT p.moment, p.id, p.user_id, p.lane, \(DeviceColumns.list)
        FROM page p LEFT JOIN LATERAL (
            SELECT x.* FROM carillon.devices x
            CROSS JOIN LATERAL (
                SELECT count(*) > 0 AS was_tried, coalesce(bool_or(\(NotificationState.endsDelivery("a"))), false) AS has_ended
                FROM carillon.delivery_attempts a
                WHERE a.notification_id = p.id AND a.device_id = x.id AND a.kind = 'push'
                    AND a.at >= $3::timestamptz - interval '1 hour'
            ) t
            WHERE x.user_id = p.user_id AND x.active AND NOT x.silenced AND NOT t.has_ended
                AND (t.was_tried OR x.pushed_since <= p.moment AND (p.was_pushed OR EXISTS (
                    SELECT FROM carillon.delivery_attempts o
                    WHERE o.notification_id = p.id AND o.kind = 'push' AND o.outcome IN ('retry', 'failed')
                        AND o.at >= $3::timestamptz - interval '1 hour')))
                AND NOT EXISTS (
                    SELECT FROM carillon.follow_ups f
                    WHERE f.user_id = p.user_id AND f.notification_id = p.id
                        AND f.kind = '\(FollowUp.release.rawValue)')
        ) d ON true
        ORDER BY p.moment, p.id
        """
}

/// Audit outcomes of steps without a provider, in rows of the kind ``kind``.
package enum AuditStep: String, Sendable, CaseIterable {
    /// Quiet hours postpone the push, for the row's duration.
    case deferred
    /// No socket confirmed receipt in time.
    case unproven
    /// A summary stands for it; the row has the summary's id as provider id.
    case summarised

    package static let kind = "step"
    /// The value of the provider column.
    static let provider = "none"
}
