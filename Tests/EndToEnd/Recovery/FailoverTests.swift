// Carillon · FailoverTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Glibc
import Support
import Synchronization
import Testing

@testable import HTTP

/// The main server of a store dies, and another takes its place.
@Suite(.timeLimit(.minutes(10)))
struct FailoverTests {
    @Test("with JOB_REPLICAS=1 no accepted job is lost when the master dies while its replicas lag")
    func jobs() async throws {
        let group = try await SentinelGroup.start(replicas: 2)
        let settings = ["REDIS_URL": group.url, "JOB_REPLICAS": "1"].merging(Stack.shortLease) { $1 }
        try await Stack.with(settings: settings) { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            let token = Stack.token(user: "shop", scope: .service)
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "online")

            let producer = Producer(gateway, token: token)
            async let production: Void = producer.run(width: 8)
            try await eventually("many are accepted") { producer.count > 200 }
            // Jobs stay in their stream, and the replicas get nothing of it.
            dispatcher.send(SIGSTOP)
            for replica in group.servers.dropFirst() { try await replica.stall() }
            // More than the kernel's buffers hold; the replicas would still read those.
            try await group.fill(0, megabytes: 32)
            let (accepted, refused) = (producer.count, producer.refusals)
            try await eventually("jobs are refused, or the master has some that its replicas will never get") {
                producer.refusals > refused + 20 || producer.count > accepted + 50
            }
            try await group.servers[0].kill()
            for replica in group.servers.dropFirst() { replica.resume() }
            try await group.waitForNewMaster()
            dispatcher.send(SIGCONT)
            let before = producer.count
            try await eventually("jobs are accepted again") { producer.count > before + 50 }
            producer.stop()
            try await production
            try await producer.check(socket, gateway, stack)
        }
    }

    @Test("without JOB_REPLICAS a failover loses the jobs that the new master lacks, and nothing that was stored")
    func unreplicated() async throws {
        let group = try await SentinelGroup.start(replicas: 2)
        try await Stack.with(settings: ["REDIS_URL": group.url].merging(Stack.shortLease) { $1 }) { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "online")
            func send(_ name: String) async throws -> [String] {
                let titles = (1...20).map { "\(name) \($0)" }
                for user in ["online", "offline"] {
                    for title in titles {
                        try await stack.append([("user", user), ("type", "payment_received"), ("title", title)])
                    }
                }
                return titles
            }
            func waitUntilStored(_ titles: [String]) async throws {
                try await eventually("all are stored") {
                    let online = try await stack.statuses(user: "online")
                    let offline = try await stack.statuses(user: "offline")
                    return titles.allSatisfy { online[$0] != nil && offline[$0] != nil }
                }
            }
            var titles = try await send("before")
            try await waitUntilStored(titles)
            // The replicas have these jobs, and will not hear that they were done.
            dispatcher.send(SIGSTOP)
            titles += try await send("replicated")
            try await eventually("the replicas have them") {
                try await stack.connection.send("WAIT", "2", "5000").integer() == 2
            }
            for replica in group.servers.dropFirst() { try await replica.stall() }
            // More than the kernel's buffers hold; the replicas would still read those.
            try await group.fill(0, megabytes: 32)
            titles += try await send("stored")
            dispatcher.send(SIGCONT)
            try await waitUntilStored(titles)
            dispatcher.send(SIGSTOP)
            let lost = try await send("lost")
            try await group.servers[0].kill()
            for replica in group.servers.dropFirst() { replica.resume() }
            try await group.waitForNewMaster()
            dispatcher.send(SIGCONT)
            titles += try await send("after")
            try await waitUntilStored(titles)
            let online = Set(try await stack.statuses(user: "online").keys)
            let offline = Set(try await stack.statuses(user: "offline").keys)
            for stored in [online, offline] {
                // A reply with the first of the lost jobs may have reached the dispatcher.
                #expect(stored.subtracting(titles).isStrictSubset(of: lost))
            }
            try await eventually("socket and phone have all that was stored") {
                Set(socket.titles) == online && Set(stack.pushed()["phone"] ?? []) == offline
            }
            #expect(socket.frames.count == Set(socket.frames).count, "twice on the socket")
        }
    }

    /// A primary and its standby, and a URL that names both.
    private static func pair() async throws -> (primary: PostgresServer, standby: PostgresServer, url: String) {
        let primary = try await PostgresServer.start()
        let standby = try await primary.startStandby()
        let url = "postgresql://carillon@127.0.0.1:\(standby.port),127.0.0.1:\(primary.port)/postgres"
        return (primary, standby, url)
    }

    @Test("pages come from a standby, and none is older than the primary's state while it is held back or gone")
    func standbyPages() async throws {
        let primary = try await PostgresServer.start()
        let standby = try await primary.startStandby()
        try await Stack.with(database: primary.url) { stack in
            let gateway = try await stack.startGateway(environment: [
                "DATABASE_READ_URL": standby.url, "INBOX_CACHE_MB": "0",
            ])
            _ = try await stack.startDispatcher()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            func pages(_ outcome: String) async throws -> Int {
                let samples = try await MetricsText.page("http://127.0.0.1:\(gateway.port)/metrics", stack).samples
                return Int(samples["carillon_standby_pages{outcome=\"\(outcome)\"}"] ?? 0)
            }
            var titles: [String] = []
            func send(_ title: String) async throws {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", title)])
                titles.insert(title, at: 0)
                try await eventually("\(title) is shown") { socket.titles.contains(title) }
                for _ in 0..<5 { #expect(try await Producer.inbox(of: "ada", gateway).titles == titles) }
            }
            try await send("one")
            try await eventually("the standby serves pages") {
                #expect(try await Producer.inbox(of: "ada", gateway).titles == titles)
                return try await pages("served") > 0
            }
            try await standby.holdBack()
            let before = try await pages("older")
            try await send("two")
            try await eventually("the primary serves pages that would be older") {
                #expect(try await Producer.inbox(of: "ada", gateway).titles == titles)
                return try await pages("older") >= before + 5
            }
            try await standby.catchUp()
            let served = try await pages("served")
            try await eventually("it serves pages again") {
                #expect(try await Producer.inbox(of: "ada", gateway).titles == titles)
                return try await pages("served") > served
            }
            try await standby.kill()
            try await send("three")
            #expect(try await pages("failed") > 0)
        }
    }

    @Test("through pgbouncer in session mode all works, LISTEN too, and goes on after it was killed")
    func bouncer() async throws {
        let server = try await PostgresServer.start()
        let bouncer = try await PgBouncer.start(before: server)
        try await Stack.with(database: bouncer.url) { stack in
            let gateway = try await stack.startBoth()
            try await gateway.register(user: "bob", platform: "android", token: "bob-phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            var configuration = TestDatabase.patientConfiguration(url: bouncer.url, applicationName: "shop")
            configuration.connections = 1
            let shop = try PostgresPool(configuration, logger: TestLog.logger)
            for title in ["before", "after"] {
                for user in ["ada", "bob"] {
                    let fields = #"{"user":"\#(user)","type":"payment_received","title":"\#(title)"}"#
                    try await eventually("the app commits a job") {
                        (try? await shop.query("SELECT carillon.enqueue($1)", .jsonb(Array(fields.utf8)))) != nil
                    }
                }
                try await eventually("\(title) is shown and pushed") {
                    socket.titles.contains(title) && stack.pushed()["bob-phone"]?.contains(title) == true
                }
                try await eventually("one session listens") {
                    try await shop.query(
                        "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN carillon%'"
                    ).count == 1
                }
                #expect(try await Producer.inbox(of: "ada", gateway).titles.first == title)
                guard title == "before" else { break }
                try await bouncer.kill()
                try await bouncer.start()
            }
            #expect(stack.pushed()["bob-phone"] == ["before", "after"])
            shop.close()
        }
    }

    @Test("no job is lost when PostgreSQL's primary dies and commits waited for its standby")
    func synchronous() async throws {
        let (primary, standby, url) = try await Self.pair()
        try await primary.waitForStandby()
        try await Stack.with(database: url, settings: Stack.shortLease) { stack in
            let gateway = try await stack.startBoth()
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "online")
            let producer = Producer(gateway, token: Stack.token(user: "shop", scope: .service))
            async let production: Void = producer.run(width: 4)
            try await eventually("many are shown") { socket.titles.count > 100 }
            try await primary.kill()
            try await standby.promote()
            let before = socket.titles.count
            try await eventually("more are shown") { socket.titles.count > before + 100 }
            producer.stop()
            try await production
            try await producer.check(socket, gateway, stack)
        }
    }

    @Test("clients end with the inbox of a standby that lacked the latest commits")
    func asynchronous() async throws {
        let (primary, standby, url) = try await Self.pair()
        try await Stack.with(database: url, settings: Stack.shortLease) { stack in
            let gateway = try await stack.startBoth()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            func send(_ title: String) async throws {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", title)])
                try await eventually("\(title) is shown") { socket.titles.contains(title) }
            }
            try await send("kept")
            try await standby.stall()
            // More than the kernel's buffers hold; the standby would still read those.
            try await primary.fillLog(megabytes: 32)
            try await send("lost 1")
            try await send("lost 2")
            let versions = socket.messages.compactMap { $0["version"]?.integer }
            let version = try #require(versions.max())
            try await primary.kill()
            standby.resume()
            try await standby.promote()
            try await send("new 1")
            try await send("new 2")

            let inbox = ["kept", "new 1", "new 2"]
            func titles(_ message: JSONValue?) -> [String] {
                (message?["notifications"]?.array ?? []).compactMap { $0["title"]?.string }.sorted()
            }
            // It starts over, so it no longer shows what was lost.
            try await eventually("the open socket starts over") {
                guard let last = socket.all("sync").last, last["reset"]?.bool == true else { return false }
                let later = socket.titles.filter { $0.hasPrefix("new") }
                return Set(titles(last) + later) == Set(inbox)
            }
            let token = Stack.token(user: "ada")
            let page = try await gateway.call(
                .get, "/v1/notifications?since_version=\(version)", token: token)
            #expect(page.body["reset"]?.bool == true)
            #expect(try await Producer.inbox(of: "ada", gateway).titles.sorted() == inbox)
        }
    }
}
