// Carillon · PartitionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Glibc
import Sandbox
import Storage
import Support
import Synchronization
import Testing

@testable import HTTP

/// Programs cut off from Redis, in one or both directions: open sockets lose nothing, and no push
/// repeats.
@Suite(.timeLimit(.minutes(10)))
struct PartitionTests {
    /// Runs `body` with a stack whose gateway reaches Redis through a proxy.
    private static func with(
        _ body: (_ stack: Stack, _ gateway: Gateway, _ proxy: TripwireProxy) async throws -> Void
    ) async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let proxy = try await TripwireProxy.start(port: stack.redis.port)
            let gateway = try await stack.startGateway(
                environment: ["REDIS_URL": "redis://127.0.0.1:\(proxy.port)/0"])
            _ = try await stack.startDispatcher()
            try await body(stack, gateway, proxy)
            await proxy.close()
        }
    }

    /// Notifies until each socket got a notification as a frame.
    ///
    /// A gateway that subscribes once more finds what came meanwhile in the inbox.
    ///
    /// - Returns: the number of notifications.
    private static func notify(
        untilFrameOn sockets: [TestSocket],
        _ notify: (_ title: String) async throws -> Void
    ) async throws -> Int {
        var count = 0
        while count < 20, !sockets.allSatisfy({ $0.frames.contains { $0.hasPrefix("after") } }) {
            count += 1
            let title = "after \(count)"
            try await notify(title)
            try await eventually("the next notification arrives") {
                sockets.allSatisfy { $0.titles.contains(title) }
            }
        }
        #expect(sockets.allSatisfy { $0.frames.contains { $0.hasPrefix("after") } }, "frames come again")
        return count
    }

    private static func isReady(_ gateway: Gateway) async throws -> Bool {
        try await gateway.call(.get, "/readyz", token: nil).status == 200
    }

    @Test("when Redis's replies are lost, pushes go out, repeated calls count once and open sockets catch up")
    func replies() async throws {
        try await Self.with { stack, gateway, proxy in
            try await gateway.register(user: "ada", platform: "android", token: "phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "before")])
            try await eventually("it works before") { socket.titles == ["before"] }

            proxy.lose(.replies)
            let app = Stack.token(user: "app", scope: .service)
            let job = #"{"user":"ada","type":"invoice_created","title":"posted","id":"posted"}"#
            // The gateway cannot know whether Redis has the job, so its caller retries.
            let unknown = try await gateway.call(.post, "/v1/jobs", token: app, json: job, retriesOutages: false)
            #expect(unknown.status == 503)
            try await eventually("the gateway is not ready") { try await !Self.isReady(gateway) }
            try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", "unheard")])
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "urgent")])
            try await eventually("the unconfirmed notification is pushed") { stack.pushed()["phone"] == ["urgent"] }
            try await eventually("all are stored") {
                Set(try await stack.statuses(user: "ada").keys).isSuperset(of: ["before", "unheard", "urgent"])
            }
            #expect(socket.titles == ["before"])

            proxy.lose(.nothing)
            try await eventually("the open socket is brought up to date") {
                Set(socket.titles).isSuperset(of: ["before", "unheard", "urgent"])
            }
            try await eventually("it is ready again") { try await Self.isReady(gateway) }
            #expect(try await gateway.call(.post, "/v1/jobs", token: app, json: job).status == 202)
            let count = try await Self.notify(untilFrameOn: [socket]) { title in
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", title)])
            }
            try await eventually("the posted job arrives too") { socket.titles.contains("posted") }
            let rows = try await stack.query("SELECT title FROM carillon.notifications WHERE user_id = 'ada'")
            #expect(rows.count == 4 + count)
            #expect(stack.pushed() == ["phone": ["urgent"]])
            #expect(socket.closeCode == nil)
        }
    }

    @Test("after a gateway lost Redis for longer than its lease, open sockets catch up")
    func everything() async throws {
        try await Self.with { stack, gateway, proxy in
            let sockets = [
                try await TestSocket.synced(port: gateway.port, user: "ada"),
                try await TestSocket.synced(port: gateway.port, user: "ben"),
            ]
            func notify(_ title: String) async throws {
                for user in ["ada", "ben"] {
                    try await stack.append([("user", user), ("type", "invoice_created"), ("title", title)])
                }
            }
            func leases() async throws -> Int {
                try await stack.connection.send("KEYS", "carillon:node:*").strings().count
            }
            try await notify("before")
            try await eventually("it works before") { sockets.allSatisfy { $0.titles == ["before"] } }

            proxy.lose(.everything)
            try await eventually("its lease has expired") { try await leases() == 0 }
            try await notify("during")
            try await eventually("its sockets are forgotten") {
                try await stack.connection.send("KEYS", "carillon:presence:*").strings().isEmpty
            }
            proxy.lose(.nothing)
            try await eventually("the open sockets are brought up to date") {
                sockets.allSatisfy { $0.titles == ["before", "during"] }
            }
            _ = try await Self.notify(untilFrameOn: sockets, notify)
            #expect(sockets.allSatisfy { $0.closeCode == nil })
        }
    }

    @Test("after a gateway stood still, open sockets get notifications sent during and after its return")
    func stoodStill() async throws {
        try await Stack.with(settings: Stack.shortLease) { stack in
            let gateway = try await stack.startBoth()
            let users = (1...20).map { "user-\($0)" }
            var opened: [TestSocket] = []
            for user in users { opened.append(try await TestSocket.synced(port: gateway.port, user: user)) }
            let sockets = opened
            let names = users.map { "\"\($0)\"" }.joined(separator: ",")
            func notify(_ title: String) async throws {
                try await stack.append([("users", "[\(names)]"), ("type", "invoice_created"), ("title", title)])
            }
            gateway.process.send(SIGSTOP)
            try await eventually("its lease has expired") {
                try await stack.connection.send("KEYS", "carillon:node:*").strings().isEmpty
            }
            try await notify("missed")
            try await eventually("its sockets are forgotten") {
                try await stack.connection.send("KEYS", "carillon:presence:*").strings().isEmpty
            }
            gateway.process.send(SIGCONT)
            // Jobs keep arriving while the sockets are registered again.
            let count = Mutex(0)
            try await eventually("all are brought up to date") {
                let number = count.withLock { count in
                    count += 1
                    return count
                }
                try await notify("\(number)")
                return sockets.allSatisfy { $0.titles.contains("missed") }
            }
            try await notify("last")
            try await eventually("the next notification reaches all") {
                sockets.allSatisfy { $0.titles.contains("last") }
            }
            #expect(sockets.allSatisfy { $0.closeCode == nil })
        }
    }

    @Test("calls that end while Redis is away are on record before it is back")
    func calls() async throws {
        try await Stack.with { stack in
            let proxy = try await TripwireProxy.start(port: stack.redis.port)
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher(environment: ["REDIS_URL": "redis://127.0.0.1:\(proxy.port)/0"])
            // Each is answered two seconds later, so the second while the first cannot be
            // acknowledged.
            for (number, user) in ["ada", "ben"].enumerated() {
                try await gateway.register(user: user, platform: "android", token: "slow-once-\(number)")
                try await stack.append([("user", user), ("type", "payment_received"), ("title", "x")])
                try await eventually("FCM has it") { stack.pushed().count == number + 1 }
            }
            proxy.lose(.everything)
            try await eventually("both are on record") {
                try await stack.query("SELECT FROM carillon.delivery_attempts WHERE outcome = 'accepted'").count == 2
            }
            proxy.lose(.nothing)
            await proxy.close()
        }
    }

    @Test(
        "after a dispatcher lost Redis for longer than its lease, no push repeats that waited for a connection",
        arguments: [true, false])
    func dispatcher(isHTTP1: Bool) async throws {
        var configuration = SandboxConfiguration()
        configuration.speaksHTTP1Only = isHTTP1
        // Until the test ends it, or until a dispatcher waits for no answer any more.
        configuration.slowPause = SlowPause(.seconds(60))
        // The slow calls use up four connections of 100 streams, or of one request.
        let (slow, count) = (isHTTP1 ? 4 : 400, 40)
        try await Stack.with(sandbox: configuration, settings: Stack.shortLease) { [configuration] stack in
            let proxy = try await TripwireProxy.start(port: stack.redis.port)
            try await stack.storePhones("slow-once-", slow)
            try await stack.storePhones("phone-", count)
            let first = try await stack.startDispatcher(
                name: "first", environment: ["REDIS_URL": "redis://127.0.0.1:\(proxy.port)/0"])
            func phones() -> [[String]] {
                stack.pushed().filter { $0.key.hasPrefix("phone-") }.map { $0.value }
            }
            try await stack.push(toPhones: "slow-once-", slow)
            try await eventually("its connections are busy") { stack.pushed().count == slow }
            try await stack.push(toPhones: "phone-", count)
            try await eventually("it has claimed the others too") {
                try await stack.connection.send("KEYS", "carillon:{fcm}:sending:*").strings().count == slow + count
            }
            #expect(phones().isEmpty)
            proxy.lose(.everything)
            _ = try await stack.startDispatcher(name: "second")
            try await eventually("another has pushed all that waited") { phones().count == count }
            proxy.lose(.nothing)
            configuration.slowPause.end()
            // It stops once it has finished all in-flight deliveries.
            #expect(try await first.stop() == .code(0))
            #expect(phones().count == count)
            #expect(phones().allSatisfy { $0 == ["x"] })
            await proxy.close()
        }
    }
}
