// Carillon · Time.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Logging
import Operations
import Pipeline
import Providers
import ServiceLifecycle
import Storage
import Support
import Synchronization
import Testing

@testable import Clients

extension Stack {
    /// Makes everything stored ten minutes older, so that the sweeper may enqueue it again.
    func makeOlder() async throws {
        for statement in [
            "UPDATE carillon.notifications SET stored_at = stored_at - interval '10 minutes'",
            "UPDATE carillon.sweep SET swept_until = swept_until - interval '20 minutes'",
        ] {
            // The update locks rows in another order than dispatchers do and may lose a deadlock.
            try await eventually("time has passed") {
                do {
                    _ = try await self.query(statement)
                    return true
                } catch let error as PostgresError where error.sqlState == "40P01" {
                    return false
                }
            }
        }
    }

    /// Waits until the sweep has passed everything stored.
    func waitForSweep() async throws {
        try await eventually("the sweeper has passed") {
            try await self.query(
                "SELECT 1 FROM carillon.notifications n, carillon.sweep s WHERE n.stored_at > s.swept_until"
            ).isEmpty
        }
    }

    /// Ends the windows of all digests.
    func closeDigests() async throws {
        try await self.query("UPDATE carillon.digests SET due_at = now()")
    }

    /// Makes a user's only socket idle, and has been for 90 seconds.
    func makeIdle(_ socket: TestSocket, user: String) async throws {
        try await socket.send(json: #"{"type":"focus","active":false,"ref":1}"#)
        _ = try await socket.first("done")
        let key = RedisArgument.text("carillon:presence:{\(user)}")
        try await eventually("the connection is idle") {
            let fields = try await self.connection.send("HGETALL", key).strings()
            guard fields.count == 2 else { return false }
            var parts = fields[1].split(separator: " ").map(String.init)
            guard parts.count == 6, parts[3] == "idle", let since = Int64(parts[5]) else { return false }
            parts[5] = "\(since - 90_000)"
            let text = parts.joined(separator: " ")
            try await self.connection.send("HSET", key, .text(fields[0]), .text(text))
            return true
        }
    }

    /// Ends the leases of all dispatchers, which must be dead.
    func endLeases() async throws {
        for key in try await self.connection.send("KEYS", "carillon:dispatcher:*").strings() {
            try await self.connection.send("DEL", .text(key))
        }
    }

    /// Keeps the leases of dead dispatchers from expiring.
    func keepLeases() async throws {
        for key in try await self.connection.send("KEYS", "carillon:dispatcher:*").strings() {
            try await self.connection.send("PERSIST", .text(key))
        }
    }

    /// The deadlines of notifications that clients have not confirmed.
    func proofDeadlines() async throws -> [Timestamp] {
        var deadlines: [Timestamp] = []
        for shard in 0..<Keyspace().proofShards {
            let key = RedisArgument.text(Keyspace().proofDeadlines(shard: shard))
            let fields = try await self.connection.send("ZRANGE", key, "0", "-1", "WITHSCORES").strings()
            for index in stride(from: 1, to: fields.count, by: 2) {
                deadlines.append(Timestamp(milliseconds: try #require(Int64(fields[index]))))
            }
        }
        return deadlines
    }

    /// Whether a proof takes so long, on a machine that stalls, that a push is due.
    func hasLateProof() async throws -> Bool {
        try await !self.query(
            "SELECT FROM carillon.notifications WHERE coalesce(delivered_at, now()) > created_at + interval '5 seconds'"
        ).isEmpty
    }

    /// Moves these deadlines to `moment`.
    func setProofDeadlines(to moment: Timestamp) async throws {
        let script = """
            for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
                redis.call('ZADD', KEYS[1], ARGV[1], member)
            end
            """
        for shard in 0..<Keyspace().proofShards {
            let key = RedisArgument.text(Keyspace().proofDeadlines(shard: shard))
            try await self.connection.send("EVAL", .text(script), "1", key, .integer(moment.milliseconds))
        }
    }

    /// Makes all waiting retries and held-back deliveries of a provider due.
    func makeDue(_ provider: Provider) async throws {
        let keys = "carillon:{\(provider.rawValue)}"
        for lane in Lane.allCases {
            let held = "\(keys):held:\(lane.rawValue)"
            let apps = try await self.connection.send("SMEMBERS", .text(held)).strings()
            for key in ["\(keys):retry:\(lane.rawValue)"] + apps.map({ "\(held):\($0)" }) {
                for member in try await self.connection.send("ZRANGE", .text(key), "0", "-1").strings() {
                    try await self.connection.send("ZADD", .text(key), "XX", "0", .text(member))
                }
            }
        }
    }

    /// Waits until no FCM delivery waits.
    func waitForPushes() async throws {
        try await eventually("nothing waits for a provider") {
            for lane in Lane.allCases {
                let stream = RedisArgument.text("carillon:{fcm}:deliveries:\(lane.rawValue)")
                if try await self.connection.send("XLEN", stream).integer() > 0 { return false }
            }
            return true
        }
    }
}

/// Quiet hours from an hour ago to an hour from now.
enum QuietNow {
    /// Settings with these quiet hours in UTC.
    static let settings = Self.settings(zone: "UTC")

    /// Settings with the same clock times in another zone.
    static func settings(zone: String) -> String {
        let minute = Int(Date.now.timeIntervalSince1970) / 60 % 1_440
        func clock(_ minutes: Int) -> String {
            LocalTime(minutes: (minutes + 1_440) % 1_440)?.description ?? ""
        }
        return #"""
            {"zone":"\#(zone)","quiet_hours":{"start":"\#(clock(minute - 60))","end":"\#(clock(minute + 60))"}}
            """#
    }

    /// Settings without quiet hours.
    static let over = #"{"quiet_hours":null}"#
}

extension Gateway {
    /// Changes a user's settings.
    func set(_ settings: String, of user: String) async throws {
        let answer = try await self.call(
            .put, "/v1/settings", token: Stack.token(user: user), json: settings)
        guard answer.status == 200 else { throw FixtureError("settings not changed: \(answer.body)") }
    }
}

/// Times and queries for tests of schedules.
enum Schedules {
    static func now() -> Timestamp { .now() }

    static func later(_ duration: Duration) -> String { (self.now() + duration).rfc3339 }

    /// Waits until the first dispatcher has recomputed all due times.
    private static func waitForZones(_ stack: Stack) async throws {
        try await eventually("the time-zone data are noted") {
            try await !stack.query("SELECT FROM carillon.zone_data").isEmpty
        }
    }

    /// Makes everything that waits due.
    static func makeDue(_ stack: Stack) async throws {
        try await self.waitForZones(stack)
        try await stack.query("UPDATE carillon.schedules SET due_at = now(), wake_at = now()")
    }

    /// The start of the previous minute.
    static func lastMinute() -> Timestamp {
        Timestamp(seconds: (self.now().seconds / 60 - 1) * 60)
    }

    /// The body that creates a daily schedule at the UTC time of `moment`.
    static func daily(at moment: Timestamp, zone: String = "UTC", job: String) -> String {
        let minute = moment.seconds / 60 % 1_440
        return #"{"cron":"\#(minute % 60) \#(minute / 60) * * *","zone":"\#(zone)","job":\#(job)}"#
    }

    /// Makes everything that waits due; recurring schedules become due at `daily`.
    static func makeDue(_ stack: Stack, daily: Timestamp) async throws {
        try await self.waitForZones(stack)
        try await stack.query(
            """
            UPDATE carillon.schedules SET due_at = CASE WHEN cron IS NULL THEN now() ELSE $1 END, wake_at = now()
            """,
            .timestamptz(daily.microseconds)
        )
    }

    static func count(_ stack: Stack) async throws -> Int64 {
        try await stack.query("SELECT count(*) FROM carillon.schedules").first?.int8(0) ?? -1
    }
}

/// A dispatcher inside the test whose clock the test sets.
///
/// It expands due work onto the streams; the dispatcher program sends.
final class ShiftedDispatcher: Sendable {
    private let ahead: Mutex<Duration>

    private init(ahead: Duration) {
        self.ahead = Mutex(ahead)
    }

    /// Puts the clock forward, or back if `duration` is negative.
    func jump(_ duration: Duration) {
        self.ahead.withLock { $0 += duration }
    }

    private var now: Timestamp { Schedules.now() + self.ahead.withLock { $0 } }

    /// Runs `body` while such a dispatcher works.
    static func with(_ stack: Stack, ahead: Duration = .zero, _ body: (ShiftedDispatcher) async throws -> Void)
        async throws
    {
        let url = try #require(stack.database?.url)
        var configuration = PostgresConfiguration(connectionString: url, applicationName: "shifted")
        configuration.sessionSettings = StoreSession.settings
        configuration.connections = 4
        let pool = try PostgresPool(configuration, logger: TestLog.logger)
        let redis = try TestRedis.connect(stack.redis.configuration())
        let shifted = ShiftedDispatcher(ahead: ahead)
        let dispatcher = try shifted.dispatcher(stack, pool, redis)
        let services: [any Service] = [
            ScheduleService(dispatcher: dispatcher, highWaterMark: 100_000), FollowUpService(dispatcher: dispatcher),
            DigestService(dispatcher: dispatcher), SweepService(dispatcher: dispatcher),
            DueService(dispatcher: dispatcher),
        ]
        let work = Task {
            await withTaskGroup(of: Void.self) { group in
                for service in services { group.addTask { try? await service.run() } }
            }
        }
        try await withCleanUp {
            work.cancel()
            await work.value
            await redis.close()
            pool.close()
        } _: {
            try await body(shifted)
        }
    }

    private func dispatcher(_ stack: Stack, _ pool: PostgresPool, _ redis: RedisClient) throws -> Dispatcher {
        let catalog = try CatalogLoader.load(path: stack.directory.file("catalog.yaml"))
        return Dispatcher(
            name: "shifted",
            database: Database(pool),
            live: Live(redis),
            eventsLength: nil,
            catalogs: CatalogRegister(catalog, now: { self.now }),
            zones: Dispatcher.Zones(ZoneDatabase(), fallback: "UTC"),
            channels: ChannelDirectory([ChannelDirectory.Entry(SilentChannel())]),
            clock: Dispatcher.Clock(now: { self.now }),
            logger: TestLog.logger
        )
    }
}

/// A channel that makes FCM known but never sends; the dispatcher program sends instead.
private struct SilentChannel: ProviderChannel {
    let provider = Provider.fcm
    let app = "default"

    func send(_ message: PushMessage, to device: Device) async -> ProviderReply {
        ProviderReply(.noCredential(reason: "the dispatcher program sends instead"))
    }
}

/// A machine clock that a test sets, as a library preloaded between a program and the C library.
///
/// The monotonic clock stays right, as it does when an administrator sets the time.
final class MachineClock: Sendable {
    private static let source = #"""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <fcntl.h>
        #include <stdint.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        #include <sys/time.h>
        #include <time.h>

        static int64_t ahead(void) {
            static const volatile int64_t *seconds;
            if (!seconds) {
                const char *path = getenv("TEST_CLOCK");
                int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
                void *memory = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
                if (memory == MAP_FAILED) abort();
                seconds = memory;
            }
            return *seconds;
        }

        int clock_gettime(clockid_t clock, struct timespec *moment) {
            static int (*original)(clockid_t, struct timespec *);
            if (!original) original = dlsym(RTLD_NEXT, "clock_gettime");
            int result = original(clock, moment);
            if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) moment->tv_sec += ahead();
            return result;
        }

        int gettimeofday(struct timeval *moment, void *zone) {
            struct timespec now;
            int result = clock_gettime(CLOCK_REALTIME, &now);
            moment->tv_sec = now.tv_sec;
            moment->tv_usec = now.tv_nsec / 1000;
            return result;
        }

        time_t time(time_t *moment) {
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            if (moment) *moment = now.tv_sec;
            return now.tv_sec;
        }
        """#

    /// Variables for a program that uses this clock.
    let environment: [String: String]
    private let file: String

    /// Compiles the library with the C compiler of the Swift toolchain.
    init(in directory: TemporaryDirectory) async throws {
        let (source, library) = (directory.file("clock.c"), directory.file("clock.so"))
        self.file = directory.file("clock.ahead")
        self.environment = ["LD_PRELOAD": library, "TEST_CLOCK": self.file]
        try Self.source.write(toFile: source, atomically: false, encoding: .utf8)
        try await ChildProcess.run(
            "clang", ["-shared", "-fPIC", "-O1", "-o", library, source], directory: directory.path)
        try self.set(ahead: 0)
    }

    /// Puts the clock ahead of the right time.
    func set(ahead seconds: Int64) throws {
        let bytes = withUnsafeBytes(of: seconds.littleEndian) { Data($0) }
        // Written in place, because the programs map this file.
        guard let handle = FileHandle(forUpdatingAtPath: self.file) else {
            try bytes.write(to: URL(fileURLWithPath: self.file))
            return
        }
        try handle.write(contentsOf: bytes)
        try handle.close()
    }
}
