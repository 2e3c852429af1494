// Carillon · OutageTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// Redis and PostgreSQL stall, die and return; nothing accepted is lost.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct OutageTests {
    @Test("jobs arrive after Redis stalled and after it was killed")
    func redis() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "before")])
            try await eventually("it works before") { socket.titles == ["before"] }

            try await stack.redis.stall()
            try await eventually("readyz says which") {
                let answer = try await gateway.call(.get, "/readyz", token: nil)
                return answer.status == 503 && answer.body["redis"]?.string == "out of reach"
                    && answer.body["postgres"]?.string == "ok"
            }
            stack.redis.resume()
            try await eventually("it is ready again") {
                try await gateway.call(.get, "/readyz", token: nil).status == 200
            }
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "stalled")])
            // On a slow machine the outage exceeds the lease of 15 s, and a sync brings it.
            func has(_ title: String) -> Bool {
                let synced = socket.all("sync").flatMap { $0["notifications"]?.array ?? [] }
                return socket.titles.contains(title) || synced.contains { $0["title"]?.string == title }
            }
            try await eventually("it works after a stall") { has("stalled") }

            try await stack.redis.kill()
            try await stack.redis.start()
            try await eventually("it is ready again") {
                try await gateway.call(.get, "/readyz", token: nil).status == 200
            }
            try await eventually("a job is taken") {
                (try? await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "reborn")])) != nil
            }
            try await eventually("the socket that stayed open gets it") { has("reborn") }
            #expect(socket.closeCode == nil)
        }
    }

    @Test("jobs wait in their stream while PostgreSQL stalls or is down")
    func postgres() async throws {
        let server = try await PostgresServer.start()
        try await Stack.with(database: server.url) { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "before")])
            try await eventually("it works before") { socket.titles == ["before"] }

            try await server.stall()
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "stalled")])
            try await eventually("readyz says which") {
                let answer = try await gateway.call(.get, "/readyz", token: nil)
                return answer.status == 503 && answer.body["postgres"]?.string == "out of reach"
                    && answer.body["redis"]?.string == "ok"
            }
            server.resume()
            try await eventually("the waiting job is delivered") {
                socket.titles.contains("stalled")
            }

            try await server.kill()
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "killed")])
            try await server.start()
            try await eventually("the waiting job is delivered") {
                socket.titles.contains("killed")
            }
            #expect(socket.titles == ["before", "stalled", "killed"])
            #expect(socket.closeCode == nil)
        }
    }

    @Test("a batch that was being stored when PostgreSQL was killed arrives once")
    func postgresInTheMiddle() async throws {
        let server = try await PostgresServer.start()
        try await Stack.with(database: server.url) { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "before")])
            try await eventually("it works before") { socket.titles == ["before"] }

            var configuration = PostgresConfiguration(connectionString: server.url, applicationName: "test")
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
                        let reply = try await stack.connection.send("XPENDING", "carillon:jobs", "dispatchers")
                        guard !waiting.isEmpty, var cursor = try reply.cursor(), try cursor.array() != nil else {
                            return false
                        }
                        return try cursor.integer() == 1
                    }
                    try await server.kill()
                }
            } catch is PostgresError {}
            try await server.start()
            try await eventually("the socket that stayed open has it") { socket.titles.contains("held") }
            try await eventually("the phone has it") { stack.pushed()["phone"] != nil }
            try await eventually("each one's status says how it went") {
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
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let token = try await Stack.token(user: "ada")
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
            try await eventually("a socket that stayed open starts afresh") {
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
