// Carillon · TestSendServiceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Providers
import Support
import Synchronization
import Testing

@testable import Pipeline
@testable import Storage

/// Test messages to one device.
@Suite(.timeLimit(.minutes(10)))
struct TestSendServiceTests {
    @Test("waits for a request for longer than commands may take")
    func patience() async throws {
        try await TestRedis.with { redis, prefix in
            let sends = TestSends(Live(redis, keys: Keyspace(prefix: prefix)))
            var configuration = try await TestRedis.configuration()
            configuration.commandTimeout = .milliseconds(200)
            try await TestRedis.with(configuration) { reader in
                _ = try await valueInTime("the wait ends") { limit -> Void? in
                    try await reader.send("PING", timeout: longestWait)
                    let session = reader.session
                    do {
                        #expect(try await sends.next(on: reader, within: limit.components.seconds) == nil)
                    } catch {
                        return nil
                    }
                    return reader.session == session ? () : nil
                }
            }
        }
    }

    private static let hanging = NotificationID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0001)
    private static let good = NotificationID(high: 0x018f_0000_0000_4000, low: 0x8000_0000_0000_0002)

    /// - Returns: the request.
    @discardableResult
    private static func ask(_ id: String, _ device: DeviceID?, _ sends: TestSends) async throws -> [UInt8] {
        let target = device.map { #""device":"\#($0)""# } ?? #""channel":"email""#
        let request = Array(#"{"id":"\#(id)","user":"ada",\#(target)}"#.utf8)
        try await sends.ask(request)
        return request
    }

    /// Runs a service whose provider hangs for one of a user's two devices, and for the address.
    private static func with(
        provider: Provider = .fcm,
        patience: Duration,
        note: @escaping @Sendable (PushMessage) -> Void = { _ in },
        _ body: (RedisClient, Keyspace) async throws -> Void
    ) async throws {
        let channel = FakeChannel(provider: provider) { message, device in
            note(message)
            guard device.token.hasPrefix("hangs") else { return .answered(.accepted(id: "1")) }
            // Until the caller gives up.
            try? await Task.sleep(for: .seconds(3_600))
            return .unanswered(reason: "cancelled", mayHaveBeenSent: true)
        }
        try await TestDispatcher.with(channel, types: [NotificationType(name: "test")]) { dispatcher, database in
            for (id, token) in [(Self.hanging, "hangs"), (Self.good, "phone")] {
                try await database.pool.query(
                    """
                    INSERT INTO carillon.devices (id, user_id, platform, provider, app, environment, token,
                        registered_at, last_used_at)
                    VALUES ($1, 'ada', 'android', 'fcm', 'default', 'production', $2, now(), now())
                    """,
                    .uuid(id.halves), .text(token))
            }
            try await database.pool.query(
                "INSERT INTO carillon.user_settings (user_id, email) VALUES ('ada', 'hangs@example.com')")
            try await Self.run(dispatcher, patience: patience) {
                try await body(dispatcher.redis, dispatcher.keys)
            }
        }
    }

    /// Runs a service of a dispatcher during `body`.
    private static func run(
        _ dispatcher: Dispatcher,
        patience: Duration,
        _ body: () async throws -> Void
    ) async throws {
        let reader = try await TestRedis.connect()
        let service = TestSendService(dispatcher: dispatcher, reader: reader, patience: patience)
        let run = Task { try await service.run() }
        try await withCleanUp {
            run.cancel()
            try? await run.value
            await reader.close()
        } _: {
            try await body()
        }
    }

    @Test("reports a provider that hangs before the caller gives up", arguments: [Provider.fcm, .email])
    func hangs(provider: Provider) async throws {
        try await Self.with(provider: provider, patience: .seconds(1)) { redis, keys in
            let sends = Live(redis, keys: keys).testSends
            let request = try await Self.ask("one", provider == .email ? nil : Self.hanging, sends)
            let text = try await sends.waitForAnswer("one", to: request)
            let answer = String(decoding: text, as: UTF8.self)
            #expect(answer.contains(#""outcome":"no_answer""#))
            #expect(answer.contains("the provider did not answer in 1 s"))
        }
    }

    @Test("leaves the badge on the app's icon as it is")
    func badge() async throws {
        let badges = Mutex<[Int64?]>([])
        try await Self.with(
            patience: .seconds(3_600), note: { message in badges.withLock { $0.append(message.badge) } }
        ) { redis, keys in
            let sends = Live(redis, keys: keys).testSends
            let request = try await Self.ask("one", Self.good, sends)
            _ = try await sends.waitForAnswer("one", to: request)
        }
        let sent = badges.withLock { $0 }
        #expect(sent == [nil])
    }

    @Test("names the dispatcher that lacks the credentials, as another may have them")
    func lacking() async throws {
        try await Self.with(provider: .apns, patience: .seconds(3_600)) { redis, keys in
            let sends = Live(redis, keys: keys).testSends
            let request = try await Self.ask("one", Self.good, sends)
            let text = try await sends.waitForAnswer("one", to: request)
            let reason = "this dispatcher (test) has no credentials of fcm for app default"
            #expect(String(decoding: text, as: UTF8.self).contains(reason))
        }
    }

    @Test("says that PostgreSQL cannot be read, and not that the device or address is gone")
    func unreadable() async throws {
        try await TestRedis.with { redis, prefix in
            var nowhere = PostgresConfiguration(
                connectionString: "postgresql://127.0.0.1:1/none", applicationName: "test")
            nowhere.waitsForServer = false
            let pool = try PostgresPool(nowhere, logger: TestLog.logger)
            defer { pool.close() }
            let dispatcher = try TestDispatcher.make(pool, redis, Keyspace(prefix: prefix))
            try await Self.run(dispatcher, patience: .seconds(3_600)) {
                let sends = dispatcher.live.testSends
                for device in [Self.good, nil] {
                    let request = try await Self.ask("one", device, sends)
                    let answer = try await sends.waitForAnswer("one", to: request)
                    let reason = "this dispatcher (test) cannot read PostgreSQL; try again"
                    #expect(String(decoding: answer, as: UTF8.self).contains(reason))
                }
            }
        }
    }

    @Test("a test send that hangs delays no other, and may have been sent")
    func together() async throws {
        try await Self.with(patience: .seconds(3_600)) { redis, keys in
            let sends = TestSends(Live(redis, keys: keys))
            var hanging: [UInt8] = []
            for number in 0..<7 { hanging = try await Self.ask("hangs-\(number)", Self.hanging, sends) }
            let good = try await Self.ask("good", Self.good, sends)
            let text = try await sends.waitForAnswer("good", to: good)
            #expect(String(decoding: text, as: UTF8.self).contains(#""outcome":"accepted""#))
            let impatient = TestSends(Live(redis, keys: keys), patience: .seconds(1))
            await #expect(throws: TestSends.Failure.unanswered) {
                try await impatient.waitForAnswer("hangs-6", to: hanging)
            }
        }
    }

    @Test("a test send that no dispatcher takes in time is not sent later")
    func untaken() async throws {
        try await TestRedis.with { redis, prefix in
            let sends = TestSends(Live(redis, keys: Keyspace(prefix: prefix)), patience: .milliseconds(200))
            let late = try await Self.ask("late", Self.good, sends)
            let other = try await Self.ask("other", Self.good, sends)
            await #expect(throws: TestSends.Failure.untaken) { try await sends.waitForAnswer("late", to: late) }
            let reader = try await TestRedis.connect()
            #expect(try await sends.next(on: reader) == other)
            await #expect(throws: TestSends.Failure.unanswered) { try await sends.waitForAnswer("other", to: other) }
            await reader.close()
        }
    }
}
