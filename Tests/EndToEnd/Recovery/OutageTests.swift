// Carillon · OutageTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import HTTP

/// Redis and PostgreSQL die and return; nothing accepted is lost.
@Suite(.timeLimit(.minutes(10)))
struct OutageTests {
    @Test("jobs arrive after Redis was killed")
    func redis() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let gateway = try await stack.startBoth()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "before")])
            try await eventually("it works before") { socket.titles == ["before"] }

            try await stack.redis.kill()
            try await stack.redis.start()
            try await eventually("it is ready again") {
                try await gateway.call(.get, "/readyz", token: nil).status == 200
            }
            try await eventually("a job is taken") {
                (try? await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "reborn")])) != nil
            }
            try await eventually("the open socket gets it") { socket.titles.contains("reborn") }
            #expect(socket.closeCode == nil)
        }
    }

    @Test("while Redis refuses writes for its memory or its disk, the reason is named; work goes on afterwards")
    func refusedWrites() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            let url = try await dispatcher.waitForLine("ready ").dropFirst("ready ".count)
            func isReady(_ status: Int, _ text: String) async -> Bool {
                guard case .answered(let answer) = await stack.http.perform(.init(.get, url: "\(url)/readyz"))
                else { return false }
                return answer.status == status && String(decoding: answer.body, as: UTF8.self) == text + "\n"
            }
            func post(_ id: String, isRefused: Bool = false) async throws -> Gateway.Answer {
                try await gateway.call(
                    .post, "/v1/jobs", token: Stack.token(user: "shop", scope: .service),
                    json: #"{"id":"\#(id)","user":"ada","type":"payment_received","title":"\#(id)"}"#,
                    retriesOutages: !isRefused)
            }
            try await eventually("the dispatcher is ready") { await isReady(200, "ready") }
            try await stack.connection.send("CONFIG", "SET", "maxmemory", "1")
            try await eventually("the dispatcher names the reason") {
                await isReady(503, "redis: out of memory")
            }
            let refusal = try await post("refused", isRefused: true)
            #expect(refusal.status == 503)
            #expect(refusal.body["detail"]?.string == "Redis is out of memory")
            try await stack.connection.send("CONFIG", "SET", "maxmemory", "0")
            try await eventually("the dispatcher is ready again") { await isReady(200, "ready") }
            #expect(try await post("accepted").status == 202)
            try await eventually("the job is stored") {
                try await stack.statuses(user: "ada").keys.sorted() == ["accepted"]
            }

            // With snapshots on, Redis refuses writes once one has failed, as on a full disk.
            try stack.redis.blockSnapshots(true)
            try await stack.connection.send("CONFIG", "SET", "save", "3600 1")
            try await stack.connection.send("BGSAVE")
            try await eventually("the dispatcher names the reason") { await isReady(503, "redis: MISCONF") }
            let unwritten = try await post("unwritten", isRefused: true)
            #expect(unwritten.body["detail"]?.string == "Redis refuses it: MISCONF")
            try await eventually("the gateway is ready, as inboxes can be read") {
                try await gateway.call(.get, "/readyz", token: nil).status == 200
            }
            try await eventually("a gateway warns") {
                gateway.process.errors().contains("the last write to disk failed")
            }
            try stack.redis.blockSnapshots(false)
            try await stack.connection.send("BGSAVE")
            try await eventually("the dispatcher is ready once more") { await isReady(200, "ready") }
            #expect(try await post("written").status == 202)
            try await eventually("that job is stored, too") {
                try await stack.statuses(user: "ada").keys.sorted() == ["accepted", "written"]
            }
        }
    }

    @Test("jobs wait in their stream while PostgreSQL is down")
    func postgres() async throws {
        let server = try await PostgresServer.start()
        try await Stack.with(database: server.url, settings: Stack.shortLease) { stack in
            let gateway = try await stack.startBoth()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "before")])
            try await eventually("it works before") { socket.titles == ["before"] }

            try await server.kill()
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "killed")])
            try await server.start()
            try await eventually("the waiting job is delivered") {
                socket.titles.contains("killed")
            }
            #expect(socket.titles == ["before", "killed"])
            #expect(socket.closeCode == nil)
        }
    }

    @Test("jobs wait while the schema lacks a column, and none becomes a dead letter")
    func schema() async throws {
        try await Stack.with { stack in
            let dispatcher = try await stack.startDispatcher()
            _ = try await stack.query("ALTER TABLE carillon.notifications RENAME COLUMN title TO away")
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "waits")])
            try await eventually("the dispatcher retries to store the job") {
                dispatcher.errors().split(separator: "\n").contains {
                    $0.contains("store notifications") && $0.contains("SQLSTATE 42703")
                }
            }
            _ = try await stack.query("ALTER TABLE carillon.notifications RENAME COLUMN away TO title")
            try await eventually("the job is stored") {
                try await stack.statuses(user: "ada").keys.sorted() == ["waits"]
            }
            let dead = try await stack.deadReasons()
            #expect(dead.isEmpty)
        }
    }

    @Test("a batch that was being stored when PostgreSQL was killed arrives once")
    func postgresInTheMiddle() async throws {
        let server = try await PostgresServer.start()
        try await Stack.with(database: server.url) { stack in
            let gateway = try await stack.startBoth()
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "before")])
            try await eventually("it works before") { socket.titles == ["before"] }

            var configuration = TestDatabase.patientConfiguration(url: server.url)
            configuration.connections = 2
            let pool = try PostgresPool(configuration, logger: TestLog.logger)
            // The lock holds the batch in the database until the kill.
            do {
                try await pool.transaction { transaction in
                    try await transaction.query("LOCK TABLE carillon.inboxes IN ACCESS EXCLUSIVE MODE")
                    try await stack.append([
                        ("users", #"["ada","offline"]"#), ("type", "payment_received"), ("title", "held"),
                    ])
                    try await eventually("the dispatcher waits for the lock with the job") {
                        let waiting = try await pool.query(
                            """
                            SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'carillon.inboxes'::regclass
                                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                            """
                        )
                        guard !waiting.isEmpty else { return false }
                        return try await stack.taken() == 1
                    }
                    try await server.kill()
                }
            } catch is PostgresError {}
            try await server.start()
            try await eventually("the open socket has it") { socket.titles.contains("held") }
            try await eventually("the phone has it") { stack.pushed()["phone"] != nil }
            try await eventually("each has its status") {
                // The pool's first connection may still be the broken one.
                let rows = try? await pool.query(
                    "SELECT user_id || ' ' || status FROM carillon.notifications WHERE title = 'held' ORDER BY user_id")
                return try rows?.map { try $0.text(0) } == ["ada delivered", "offline sent"]
            }
            try await eventually("nothing is left in the stream") {
                try await stack.connection.send("XLEN", "carillon:jobs").integer() == 0
            }
            #expect(socket.titles == ["before", "held"])
            #expect(stack.pushed() == ["phone": ["held"]])
            #expect(socket.closeCode == nil)
            pool.close()
        }
    }

    @Test("after PostgreSQL was restored to an earlier moment, every client gets a reset")
    func restored() async throws {
        let server = try await PostgresServer.start()
        try await Stack.with(database: server.url) { stack in
            let gateway = try await stack.startBoth()
            let token = Stack.token(user: "ada")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            func send(_ title: String) async throws {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", title)])
                try await eventually("it arrives") { socket.titles.contains(title) }
            }
            try await send("kept")
            try await server.stop()
            try await server.backUp()
            try await server.start()
            try await send("lost")
            let before = try await gateway.call(.get, "/v1/notifications", token: token)
            let version = try #require(before.body["version"]?.integer)
            let tag = try #require(before.header("etag"))
            #expect(before.body["notifications"]?.array?.count == 2)

            try await server.stop()
            try await server.restore()
            try await server.start()
            try await eventually("an open socket gets a reset") {
                socket.all("sync").contains { $0["reset"]?.bool == true }
            }
            // Without the reset, this would reach the version that clients already have.
            try await send("other")
            func titles(_ list: JSONValue?) -> [String] { list?.array?.compactMap { $0["title"]?.string } ?? [] }
            let page = try await gateway.call(
                .get, "/v1/notifications", token: token, headers: [("if-none-match", tag)])
            #expect(page.status == 200)
            #expect(titles(page.body["notifications"]) == ["other", "kept"])
            let reached = try #require(page.body["version"]?.integer)
            #expect(reached > version && reached < 1 << 53)
            for since in [version - 1, version, version + 1] {
                let changes = try await gateway.call(
                    .get, "/v1/notifications?since_version=\(since)", token: token)
                #expect(changes.body["reset"]?.bool == true)
                let resumed = try await TestSocket.synced(
                    port: gateway.port, user: "ada", query: "?resume=\(since)")
                let sync = try await resumed.first("sync")
                #expect(sync["reset"]?.bool == true)
                #expect(titles(sync["notifications"]) == ["other", "kept"])
            }
            #expect(socket.closeCode == nil)
        }
    }
}

/// A server stalls longer than any lease or deadline of the pipeline; no accepted job is lost.
///
/// Not serialized, so that both outages pass at the same time.
@Suite(.timeLimit(.minutes(10)))
struct LongOutageTests {
    /// Longer than the time limits of calls and the lease.
    private static let outage: Duration = .milliseconds(3_200)
    private static let settings = ["LEASE_SECONDS": "3"]
    /// The pairs of jobs that are posted meanwhile.
    private static let pairs = 4
    private static let online = "online"
    private static let offline = "offline"
    private static let phone = "offline-phone"

    @Test("during a long outage of Redis, jobs over HTTP are refused; accepted jobs arrive")
    func redis() async throws {
        try await Stack.with(settings: Self.settings) { stack in
            let gateway = try await stack.startBoth()
            try await gateway.register(user: Self.offline, platform: "android", token: Self.phone)
            let socket = try await TestSocket.synced(port: gateway.port, user: Self.online)
            try await Self.append("before", to: stack)

            try await stack.redis.stall()
            try await eventually("readyz names the server") {
                let answer = try await gateway.call(.get, "/readyz", token: nil)
                return answer.status == 503 && answer.body["redis"]?.string == "out of reach"
                    && answer.body["postgres"]?.string == "ok"
            }
            // The reason could name hosts and roles, so only the log has it.
            let refusal = try await gateway.call(.get, "/readyz", token: nil)
            #expect(refusal.body.object?.map(\.key) == ["ready", "redis", "postgres"])
            let statuses = try await Self.enqueue(through: gateway, retriesOutages: false)
            #expect(statuses.allSatisfy { $0 == 503 }, "\(statuses)")
            stack.redis.resume()

            try await Self.recover(gateway)
            // The callers were told to retry and do; a job that got through the first time is known
            // by its id.
            for number in statuses.indices {
                for user in [Self.online, Self.offline] {
                    #expect(try await Self.enqueue(number, for: user, through: gateway) == 202)
                }
            }
            try await Self.append("after", to: stack)
            try await Self.expectAll(of: statuses.count, socket, stack)
        }
    }

    @Test("during a long outage of PostgreSQL, jobs are accepted, and they arrive afterwards")
    func postgres() async throws {
        let server = try await PostgresServer.start()
        try await Stack.with(database: server.url, settings: Self.settings) { stack in
            let gateway = try await stack.startBoth()
            try await gateway.register(user: Self.offline, platform: "android", token: Self.phone)
            let socket = try await TestSocket.synced(port: gateway.port, user: Self.online)
            try await Self.append("before", to: stack)

            try await server.stall()
            try await eventually("readyz names the server") {
                let answer = try await gateway.call(.get, "/readyz", token: nil)
                return answer.status == 503 && answer.body["postgres"]?.string == "out of reach"
                    && answer.body["redis"]?.string == "ok"
            }
            // On a machine that stalls, Redis may be too late for a call.
            let statuses = try await Self.enqueue(through: gateway, retriesOutages: true)
            #expect(statuses.allSatisfy { $0 == 202 }, "\(statuses)")
            server.resume()

            try await Self.recover(gateway)
            try await Self.append("after", to: stack)
            try await Self.expectAll(of: statuses.count, socket, stack)
        }
    }

    // MARK: Steps

    /// Appends one job for the online user and one for the offline user.
    private static func append(_ title: String, to stack: Stack) async throws {
        for user in [Self.online, Self.offline] {
            try await stack.append([("user", user), ("type", "payment_received"), ("title", "\(title) \(user)")])
        }
    }

    /// Posts pairs of jobs without waiting for the answers, until the outage has lasted.
    ///
    /// - Parameter retriesOutages: whether to post a job again while Redis or PostgreSQL cannot
    ///   take it.
    /// - Returns: the status of each pair.
    private static func enqueue(through gateway: Gateway, retriesOutages: Bool) async throws -> [Int] {
        let clock = ContinuousClock()
        let start = clock.now
        return try await withThrowingTaskGroup(of: (number: Int, status: Int).self) { group in
            for number in 0..<Self.pairs {
                group.addTask {
                    async let first = Self.enqueue(
                        number, for: Self.online, through: gateway, retriesOutages: retriesOutages)
                    async let second = Self.enqueue(
                        number, for: Self.offline, through: gateway, retriesOutages: retriesOutages)
                    let answers = try await (first, second)
                    #expect(answers.0 == answers.1)
                    return (number, answers.0)
                }
                let next = start + Self.outage / Self.pairs * (number + 1)
                try await eventually("it is time for the next pair") { clock.now >= next }
            }
            var statuses = [Int](repeating: 0, count: Self.pairs)
            for try await answer in group { statuses[answer.number] = answer.status }
            return statuses
        }
    }

    /// Posts a job and returns the answer's status.
    private static func enqueue(
        _ number: Int,
        for user: String,
        through gateway: Gateway,
        retriesOutages: Bool = true
    ) async throws -> Int {
        try await gateway.call(
            .post,
            "/v1/jobs",
            token: Stack.token(user: "shop", scope: .service),
            json: """
                {"id":"\(number)","user":"\(user)","type":"payment_received","title":"during \(number) \(user)"}
                """,
            retriesOutages: retriesOutages
        ).status
    }

    private static func recover(_ gateway: Gateway) async throws {
        try await eventually("it is ready again") {
            try await gateway.call(.get, "/readyz", token: nil).status == 200
        }
    }

    /// Waits until every accepted job has arrived, once on the socket and once on the phone.
    private static func expectAll(of count: Int, _ socket: TestSocket, _ stack: Stack) async throws {
        func titles(_ user: String) -> Set<String> {
            Set(["before \(user)", "after \(user)"] + (0..<count).map { "during \($0) \(user)" })
        }
        try await eventually("the open socket has all") {
            Set(socket.titles).isSuperset(of: titles(Self.online))
        }
        try await eventually("the phone has all") {
            Set(stack.pushed()[Self.phone] ?? []).isSuperset(of: titles(Self.offline))
        }
        #expect(Set(socket.titles) == titles(Self.online))
        #expect(socket.frames.count == Set(socket.frames).count)
        #expect(socket.closeCode == nil)
        #expect(stack.pushed()[Self.phone]?.sorted() == titles(Self.offline).sorted())
    }
}
