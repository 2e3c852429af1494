// Carillon · DeliveryLoad.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Foundation
import Storage

/// Deliveries of one provider, stored as the first stage would have and appended to its stream.
struct DeliveryLoad {
    let provider: Provider
    let stack: ScratchStack
    private var works: ArraySlice<DeliveryWork>

    /// Registers users with a device each, and stores `count` notifications for them.
    ///
    /// - Parameters:
    ///   - name: what the users' names begin with.
    ///   - token: the token of the device with that number.
    init(
        _ name: String,
        provider: Provider,
        users: Int,
        count: Int,
        in stack: ScratchStack,
        token: (Int) async throws -> String
    ) async throws {
        let pool = stack.database.pool
        var devices: [OfflineUsers.Device] = []
        for number in 0..<users {
            devices.append(OfflineUsers.Device(user: "\(name)-\(number)", token: try await token(number)))
        }
        let platform = provider == .apns ? "ios" : provider == .webpush ? "web" : "android"
        _ = try await OfflineUsers.register(devices, platform: platform, provider: provider.rawValue, in: pool)
        let stored = try await pool.query(
            Self.notifications, .text(name), .int4(Int32(clamping: count)), .int4(Int32(clamping: users)),
            timeout: .seconds(120))
        try await pool.query(Self.inboxes, .text(name))
        let found = try await pool.query(
            "SELECT user_id, id FROM carillon.devices WHERE user_id LIKE $1 || '-%'", .text(name))
        try await pool.withScriptConnection { try $0.execute("VACUUM ANALYZE") }
        self.provider = provider
        self.stack = stack
        self.works = try Self.works(stored, found)[...]
    }

    private static func works(_ stored: PostgresResult, _ devices: PostgresResult) throws -> [DeliveryWork] {
        var byUser: [String: NotificationID] = [:]
        for row in devices { byUser[try row.text(0)] = NotificationID(try row.uuid(1)) }
        var works: [DeliveryWork] = []
        for row in stored {
            let user = try row.text(0)
            guard let device = byUser[user] else { throw ValidationError("\(user) has no device") }
            works.append(
                DeliveryWork(
                    notification: NotificationID(try row.uuid(1)), device: device, user: user, attempt: 0,
                    isRepeat: false))
        }
        return works
    }

    private var stream: String { Keyspace().deliveries(self.provider, .normal) }

    /// Appends the next `count` of them.
    mutating func append(_ count: Int) async throws {
        var rest = self.works.prefix(count)
        self.works = self.works.dropFirst(count)
        while !rest.isEmpty {
            var batch = RedisBatch()
            for work in rest.prefix(256) {
                batch.append("XADD", .text(self.stream), "*", .text(DeliveryWork.field), .text(work.text))
            }
            rest = rest.dropFirst(256)
            for reply in try await self.stack.redis.connection.send(batch, timeout: .seconds(30)) {
                _ = try reply.checked()
            }
        }
    }

    /// Waits until nothing is in the stream, nor held back from it: what is in it is taken out when it is on record.
    func drain(by dispatcher: ChildProgram) async throws {
        let deadline = ContinuousClock.now + .seconds(180)
        while true {
            // Before and after, as what is held back was in the stream, and returns there.
            let held = try await self.held()
            let rest = try await self.stack.redis.connection.send("XLEN", .text(self.stream)).integer()
            if held == 0, rest == 0, try await self.held() == 0 { return }
            guard dispatcher.exit == nil, ContinuousClock.now < deadline else {
                throw ValidationError("\(rest) pushes are not on record: \(dispatcher.log.suffix(500))")
            }
            // The stream tells nobody that it is empty.
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    private func held() async throws -> Int {
        let connection = self.stack.redis.connection
        let retries = try await RetrySet(connection: connection, keys: Keyspace())
            .count(provider: self.provider, lane: .normal)
        let held = try await HeldSets(connection: connection, keys: Keyspace())
            .waiting(provider: self.provider, lane: .normal)
        return retries + held.count
    }

    /// How many of them are on record as accepted.
    func accepted() async throws -> Int {
        let rows = try await self.stack.database.pool.query(
            "SELECT count(*) FROM carillon.delivery_attempts WHERE provider = $1 AND outcome = 'accepted'",
            .text(self.provider.rawValue))
        return Int(try rows.first?.int8(0) ?? 0)
    }

    private static let notifications = """
        INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, type, severity, delivery, lane,
            channels, title, body, data, status, created_at)
        SELECT $1 || '-' || n % $3::int4, gen_random_uuid(), 1 + n / $3::int4, 'x', '', 'payment_received', 'info', 'push',
            'normal', 3, 'Payment received', 'EUR 40 from Ada', '{"sent_us":1,"invoice":"i9"}'::jsonb, 'pending', now()
        FROM generate_series(0, $2::int4 - 1) n
        RETURNING user_id, id
        """

    private static let inboxes = """
        INSERT INTO carillon.inboxes (user_id, version, unread, total)
        SELECT user_id, count(*), count(*), count(*) FROM carillon.notifications WHERE user_id LIKE $1 || '-%'
        GROUP BY user_id
        """
}
