// Carillon · SweepTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support
import Testing

/// Notifications in PostgreSQL are sent even if Redis has forgotten them.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct SweepTests {
    private static let title = "Paid"

    @Test(
        "notifications stored before Redis lost their jobs are sent once",
        arguments: [["FLUSHALL"], ["DEL", "carillon:jobs"]] as [[RedisArgument]]
    )
    func forgottenJobs(command: [RedisArgument]) async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "online")
            try await Self.storeUnowned(["online", "offline"], in: stack)
            try await stack.connection.send(command)
            try await eventually("the socket that stayed open is registered") {
                try await stack.connection.send("HLEN", "carillon:presence:{online}").integer() == 1
            }
            try await stack.age()

            _ = try await stack.startDispatcher(name: "second")
            try await eventually("each one's status says how it went") {
                let online = try await stack.statuses(user: "online")
                let offline = try await stack.statuses(user: "offline")
                return online == [Self.title: "delivered"] && offline == [Self.title: "sent"]
            }
            try await stack.waitForSweep()
            #expect(Self.seen(by: socket) == [Self.title])
            #expect(stack.pushed() == ["phone": [Self.title]])
        }
    }

    @Test("a push waiting for its retry when Redis is emptied is still sent")
    func forgottenRetry() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            try await eventually("Redis has its memory mark") {
                try await stack.connection.send("EXISTS", "carillon:memory").integer() == 1
            }
            try await gateway.register(user: "offline", platform: "android", token: "unavailable-3x-phone")
            try await stack.append([("user", "offline"), ("type", "payment_received"), ("title", Self.title)])
            try await eventually("the first try has failed and the next is planned") {
                try await stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'retry'").count > 0
            }
            #expect(stack.pushed().isEmpty)
            dispatcher.send(SIGKILL)
            try await dispatcher.waitForExit()
            try await stack.connection.send("FLUSHALL")
            try await stack.age()

            _ = try await stack.startDispatcher(name: "second")
            try await eventually("the phone has it") {
                stack.pushed() == ["unavailable-3x-phone": [Self.title]]
            }
            try await eventually("it counts as sent") {
                try await stack.statuses(user: "offline") == [Self.title: "sent"]
            }
        }
    }

    @Test("when Redis is emptied, only the device that was still waiting gets the push")
    func forgottenBesideAccepted() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            try await eventually("Redis has its memory mark") {
                try await stack.connection.send("EXISTS", "carillon:memory").integer() == 1
            }
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let tablet = "unavailable-3x-tablet"
            try await gateway.register(user: "offline", platform: "android", token: tablet, name: "tablet")
            try await stack.append([("user", "offline"), ("type", "payment_received"), ("title", Self.title)])
            try await eventually("one device has it, and the next try for the other is planned") {
                let tried = try await stack.query("SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'retry'")
                let statuses = try await stack.statuses(user: "offline")
                return !tried.isEmpty && statuses == [Self.title: "sent"]
            }
            #expect(stack.pushed() == ["phone": [Self.title]])
            dispatcher.send(SIGKILL)
            try await dispatcher.waitForExit()
            try await stack.connection.send("FLUSHALL")

            _ = try await stack.startDispatcher(name: "second")
            try await eventually("both devices have it on record") {
                try await stack.query(
                    "SELECT DISTINCT device_id FROM carillon.delivery_attempts WHERE outcome = 'accepted'"
                ).count == 2
            }
            try await stack.waitForPushes()
            #expect(stack.pushed() == ["phone": [Self.title], tablet: [Self.title]])
        }
    }

    @Test("waiting mail and attention pushes are still sent after Redis is emptied")
    func forgottenBesideOthers() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(
                """
                types:
                  letter: {channels: [in_app, email]}
                  memo: {severity: info, delivery: push, lane: critical, attention_delay: 1s}
                """
            ).merging(stack.mailSettings()) { $1 }
            let gateway = try await stack.startGateway(environment: environment)
            let dispatcher = try await stack.startDispatcher(environment: environment)
            try await eventually("Redis has its memory mark") {
                try await stack.connection.send("EXISTS", "carillon:memory").integer() == 1
            }
            let address = "busy-3x-ada@example.com"
            try await stack.setAddress(address, of: "ada", wanting: "letter", by: gateway)
            try await gateway.register(user: "idle", platform: "android", token: "unavailable-3x-phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "idle")
            try await stack.leaveIdle(socket, user: "idle")
            try await stack.append([("user", "ada"), ("type", "letter"), ("title", "Mail")])
            try await stack.append([("user", "idle"), ("type", "memo"), ("title", "Push")])
            try await eventually("the first try of both has failed, and their notifications wait for nothing") {
                let tried = try await stack.query(
                    "SELECT DISTINCT user_id FROM carillon.delivery_attempts WHERE outcome = 'retry'")
                let (ada, idle) = (try await stack.statuses(user: "ada"), try await stack.statuses(user: "idle"))
                return tried.count == 2 && ada == ["Mail": "sent"] && idle == ["Push": "delivered"]
            }
            #expect(stack.pushed().isEmpty)
            #expect(try stack.mails().isEmpty)
            dispatcher.send(SIGKILL)
            try await dispatcher.waitForExit()
            try await stack.connection.send("FLUSHALL")

            _ = try await stack.startDispatcher(name: "second", environment: environment)
            try await eventually("both have come", within: .seconds(60)) {
                try await stack.hurryMail()
                let mails = try stack.mails().map(\.recipient)
                return mails == [address] && stack.pushed()["unavailable-3x-phone"] == ["Push"]
            }
            try await eventually("no follow-up is left") {
                try await stack.query("SELECT 1 FROM carillon.follow_ups").isEmpty
            }
        }
    }

    /// Makes a dispatcher store a notification for each user and die before it hands them on.
    private static func storeUnowned(_ users: [String], in stack: Stack) async throws {
        let dispatcher = try await stack.startDispatcher(name: "doomed")
        let pool = try #require(stack.database?.pool)
        // The lock holds the whole batch in the database until the dispatcher has stopped.
        try await pool.transaction { transaction in
            try await transaction.query("LOCK TABLE carillon.inboxes IN ACCESS EXCLUSIVE MODE")
            // One job, because two might be taken separately.
            try await stack.append([
                ("users", String(decoding: JSONWriter.bytes(of: .array(users.map { .string($0) })), as: UTF8.self)),
                ("type", "payment_received"), ("title", Self.title),
            ])
            try await eventually("the dispatcher waits for the lock with the job") {
                // Other tests' databases are on the same server.
                let waiting = try await stack.query(
                    """
                    SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
                    WHERE NOT l.granted AND l.relation = 'carillon.inboxes'::regclass
                    """
                )
                let reply = try await stack.connection.send("XPENDING", "carillon:jobs", "dispatchers")
                guard !waiting.isEmpty, var cursor = try reply.cursor(), try cursor.array() != nil else { return false }
                return try cursor.integer() == 1
            }
            dispatcher.send(SIGSTOP)
        }
        try await eventually("all are stored and without an owner") {
            try await stack.query(
                "SELECT id FROM carillon.notifications WHERE status = 'pending' AND status_reason IS NULL"
            ).count == users.count
        }
        dispatcher.send(SIGKILL)
        try await dispatcher.waitForExit()
    }

    /// Titles received by frame, or by the sync that follows when Redis comes back empty.
    private static func seen(by socket: TestSocket) -> [String] {
        let synced = socket.all("sync").flatMap { $0["notifications"]?.array ?? [] }
        return socket.titles + synced.compactMap { $0["title"]?.string }
    }
}
