// Carillon · FailoverTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Glibc
import Support
import Synchronization
import Testing

@testable import HTTP

/// Sends numbered jobs from several tasks, each with the same id until it is accepted.
private final class Producer: Sendable {
    private let state = Mutex((next: 0, refusals: 0, isOver: false))
    private let gateway: Gateway
    private let token: String

    init(_ gateway: Gateway, token: String) {
        self.gateway = gateway
        self.token = token
    }

    /// The number of jobs so far.
    var count: Int { self.state.withLock { $0.next } }

    /// How often a job was refused.
    var refusals: Int { self.state.withLock { $0.refusals } }

    func stop() { self.state.withLock { $0.isOver = true } }

    /// Sends until ``stop()``.
    func run(width: Int) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<width {
                group.addTask { while let number = self.take() { try await self.submit(number) } }
            }
            try await group.waitForAll()
        }
    }

    private func take() -> Int? {
        self.state.withLock { state in
            guard !state.isOver else { return nil }
            defer { state.next += 1 }
            return state.next
        }
    }

    private func submit(_ number: Int) async throws {
        let user = number % 2 == 0 ? "online" : "offline"
        let json = #"{"id":"job-\#(number)","user":"\#(user)","type":"payment_received","title":"job \#(number)"}"#
        try await eventually("job \(number) is accepted") {
            let answer = try await self.gateway.call(.post, "/v1/jobs", token: self.token, json: json)
            guard answer.status != 202 else { return true }
            #expect(answer.status == 503 && answer.header("retry-after") != nil)
            self.state.withLock { $0.refusals += 1 }
            return false
        }
    }
}

/// The main server of a store dies, and another takes its place.
@Suite(.timeLimit(.minutes(10)))
struct FailoverTests {
    /// Titles that a client has been shown, by frames and by syncs.
    private static func shown(_ socket: TestSocket) -> Set<String> {
        let synced = socket.all("sync").flatMap { $0["notifications"]?.array ?? [] }
        return Set(socket.titles + synced.compactMap { $0["title"]?.string })
    }

    /// Returns the titles of a user's inbox, and its version.
    private static func inbox(of user: String, _ gateway: Gateway) async throws -> (titles: [String], version: Int64) {
        let token = try await Stack.token(user: user)
        var titles: [String] = []
        var cursor = ""
        while true {
            let page = try await gateway.call(.get, "/v1/notifications?limit=100\(cursor)", token: token).body
            titles += (page["notifications"]?.array ?? []).compactMap { $0["title"]?.string }
            guard let next = page["next_cursor"]?.string else { return (titles, page["version"]?.integer ?? 0) }
            cursor = "&cursor=\(next)"
        }
    }

    /// Waits until every job of a ``Producer`` is in the inbox once or on the phone.
    ///
    /// The socket must have the inbox's version, and no frame twice.
    private static func check(
        _ count: Int, _ socket: TestSocket, _ gateway: Gateway, _ stack: Stack
    ) async throws {
        let online = stride(from: 0, to: count, by: 2).map { "job \($0)" }
        let offline = Set(stride(from: 1, to: count, by: 2).map { "job \($0)" })
        try await eventually("the inbox has every job once, and the socket its version") {
            let inbox = try await Self.inbox(of: "online", gateway)
            let versions = (socket.all("notification") + socket.all("sync")).compactMap { $0["version"]?.integer }
            return inbox.titles.sorted() == online.sorted() && versions.max() == inbox.version
        }
        #expect(socket.titles.count == Set(socket.titles).count, "twice on the socket")
        try await eventually("the phone got every job") { Set(stack.pushed()["phone"] ?? []) == offline }
    }

    @Test("with JOB_REPLICAS=1 no accepted job is lost when the master dies while its replicas lag")
    func jobs() async throws {
        let group = try await SentinelGroup.start(replicas: 2)
        let settings = ["REDIS_URL": group.url, "JOB_REPLICAS": "1"].merging(Stack.shortLease) { $1 }
        try await Stack.with(settings: settings) { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            let token = try await Stack.token(user: "shop", scope: .service)
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
            try await Self.check(producer.count, socket, gateway, stack)
        }
    }

    /// A primary and its standby, and a URL that names both.
    private static func pair() async throws -> (primary: PostgresServer, standby: PostgresServer, url: String) {
        let primary = try await PostgresServer.start()
        let standby = try await primary.startStandby()
        let url = "postgresql://carillon@127.0.0.1:\(standby.port),127.0.0.1:\(primary.port)/postgres"
        return (primary, standby, url)
    }

    @Test("no job is lost when PostgreSQL's primary dies and commits waited for its standby")
    func synchronous() async throws {
        let (primary, standby, url) = try await Self.pair()
        try await primary.waitForStandby()
        try await Stack.with(database: url, settings: Stack.shortLease) { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "online")
            let producer = Producer(gateway, token: try await Stack.token(user: "shop", scope: .service))
            async let production: Void = producer.run(width: 4)
            try await eventually("many are shown") { Self.shown(socket).count > 100 }
            try await primary.kill()
            try await standby.promote()
            let before = Self.shown(socket).count
            try await eventually("more are shown") { Self.shown(socket).count > before + 100 }
            producer.stop()
            try await production
            try await Self.check(producer.count, socket, gateway, stack)
        }
    }

    @Test("clients end with the inbox of a standby that lacked the latest commits")
    func asynchronous() async throws {
        let (primary, standby, url) = try await Self.pair()
        try await Stack.with(database: url, settings: Stack.shortLease) { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            func send(_ title: String) async throws {
                try await stack.append([("user", "ada"), ("type", "invoice_created"), ("title", title)])
                try await eventually("\(title) is shown") { Self.shown(socket).contains(title) }
            }
            try await send("kept")
            try await standby.stall()
            // More than the kernel's buffers hold; the standby would still read those.
            try await primary.fillLog(megabytes: 32)
            try await send("lost 1")
            try await send("lost 2")
            let version = try #require(socket.all("notification").last?["version"]?.integer)
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
            let token = try await Stack.token(user: "ada")
            let page = try await gateway.call(
                .get, "/v1/notifications?since_version=\(version)", token: token)
            #expect(page.body["reset"]?.bool == true)
            #expect(try await Self.inbox(of: "ada", gateway).titles.sorted() == inbox)
        }
    }
}
