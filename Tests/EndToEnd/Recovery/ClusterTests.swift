// Carillon · ClusterTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Glibc
import HTTP
import Sandbox
import Storage
import Support
import Testing

/// Both programs on a Redis Cluster.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct ClusterTests {
    private static func settings(_ cluster: TestCluster) -> [String: String] {
        ["REDIS_URL": cluster.url, "JOB_REPLICAS": "1"].merging(Stack.shortLease) { $1 }
    }

    /// Runs `dispatcher parts grow`.
    ///
    /// - Returns: whether it succeeded, and whether it found programs that still run.
    private static func grow(_ stack: Stack, to parts: Int) async throws -> (succeeded: Bool, isRunning: Bool) {
        let name = "grow-\(UUID().uuidString.prefix(8))"
        let process = try await stack.spawn("dispatcher", ["parts", "grow", "\(parts)"], name: name)
        let status = try await process.waitForExit()
        return (status == .code(0), process.errors().contains("carillon-dispatcher and carillon-gateway still use"))
    }

    /// Returns the slot of a user's part, and a key of it.
    private static func place(of user: String) -> (slot: Int, key: String) {
        let jobs = Keyspace(parts: 16).part(of: user).jobs(.normal)
        let key = String(jobs[...(jobs.firstIndex(of: "}") ?? jobs.startIndex)]) + "filler"
        return (RedisSlot.of(Array(key.utf8)), key)
    }

    @Test("with JOB_REPLICAS=1 no accepted job is lost when three masters die while their replicas lag")
    func failovers() async throws {
        let cluster = try await TestCluster.start()
        try await Stack.with(settings: Self.settings(cluster)) { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher(name: "one")
            _ = try await stack.startDispatcher(name: "two")
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "online")
            let producer = Producer(gateway, token: Stack.token(user: "shop", scope: .service))
            async let production: Void = producer.run(width: 8)
            for user in ["online", "offline", "online"] {
                var before = producer.count
                try await eventually("many are accepted") { producer.count > before + 200 }
                let place = Self.place(of: user)
                try await cluster.failOver(slot: place.slot, after: .milliseconds(1_500), filler: place.key)
                before = producer.count
                try await eventually("jobs are accepted again") { producer.count > before + 50 }
            }
            producer.stop()
            try await production
            try await producer.check(socket, gateway, stack)
        }
    }

    @Test("loses nothing while a fourth master joins and the slots of users' parts move there and back")
    func moves() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let settings = Self.settings(cluster).merging(["JOB_REPLICAS": "0"]) { $1 }
        try await Stack.with(settings: settings) { stack in
            let gateway = try await stack.startBoth()
            try await gateway.register(user: "offline", platform: "android", token: "phone")
            let socket = try await TestSocket.synced(port: gateway.port, user: "online")
            let producer = Producer(gateway, token: Stack.token(user: "shop", scope: .service))
            async let production: Void = producer.run(width: 8)
            let fourth = try await cluster.join()
            for user in ["online", "offline"] {
                let slot = Self.place(of: user).slot
                let home = try await cluster.master(of: slot)
                for (source, target) in [(home, fourth), (fourth, home)] {
                    let before = producer.count
                    try await eventually("many are accepted") { producer.count > before + 100 }
                    try await cluster.move(slot, from: source, to: target)
                }
            }
            producer.stop()
            try await production
            try await producer.check(socket, gateway, stack)
        }
    }

    @Test("takes jobs that an app appends under the plain names, whatever their users' parts")
    func plainNames() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let settings = Self.settings(cluster).merging(["JOB_REPLICAS": "0"]) { $1 }
        try await Stack.with(settings: settings) { stack in
            let gateway = try await stack.startBoth()
            let users = (1...20).map { "user-\($0)" }
            for user in users {
                for stream in ["carillon:jobs", "carillon:jobs:critical", "carillon:jobs:bulk"] {
                    try await stack.append(
                        [("user", user), ("type", "invoice_created"), ("title", stream)], stream: stream)
                }
            }
            for user in users {
                try await eventually("\(user) has all") {
                    try await Producer.inbox(of: user, gateway).titles.count == 3
                }
            }
            let nodes = try await gateway.call(
                .get, "/v1/admin/nodes", token: Stack.token(user: "op", scope: .admin))
            #expect(nodes.body["gateways"]?.array?.count == 1 && nodes.body["dispatchers"]?.array?.count == 1)
        }
    }

    @Test("webhooks, and `dispatcher events`, get the events of every part once")
    func events() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let settings = Self.settings(cluster).merging(["JOB_REPLICAS": "0", "WEBHOOKS_PRIVATE": "on"]) { $1 }
        try await Stack.with(settings: settings) { stack in
            try await HTTPStub.with(.init(body: "ok")) { stub in
                let gateway = try await stack.startGateway()
                let answer = try await gateway.call(
                    .post, "/v1/webhooks", token: Stack.token(user: "shop", scope: .service),
                    json: #"{"url":"\#(stub.url)/hook"}"#)
                #expect(answer.status == 201)
                for name in ["one", "two"] { _ = try await stack.startDispatcher(name: name) }
                let users = (1...40).map { "user-\($0)" }
                for user in users {
                    try await stack.append([("user", user), ("type", "invoice_created"), ("title", "x")])
                }
                try await eventually("the receiver has all") { try stub.events().count >= users.count }
                let received = try stub.events()
                #expect(received.compactMap { $0["user"]?.string }.sorted() == users.sorted())
                let ids = Set(received.compactMap { $0["id"]?.string })
                #expect(ids.count == users.count)
                #expect(Set(ids.compactMap { $0.split(separator: "/").first }).count > 1, "several streams")
                let shown = try await stack.command(["events", "--count", "100", "--json"])
                let printed = try shown.output.split(separator: "\n").map { try JSONParser.parse(Array($0.utf8)) }
                #expect(Set(printed.compactMap { $0["id"]?.string }) == ids)
            }
        }
    }

    @Test("an installation moves from one Redis to a cluster with the steps of docs/scaling.md")
    func moving() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await Stack.with(settings: Stack.shortLease) { stack in
            let old = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            try await old.register(user: "ada", platform: "android", token: "ada-phone")
            try await old.set(QuietNow.settings, of: "ada")
            try await stack.append([("user", "ada"), ("type", "invoice_overdue"), ("title", "before")])
            try await eventually("it waits for the end of quiet hours") {
                try await stack.statuses(user: "ada") == ["before": "deferred"]
            }
            #expect(try await Self.grow(stack, to: 16).isRunning)
            for process in [old.process, dispatcher] {
                process.send(SIGTERM)
                try await process.waitForExit()
            }
            #expect(try await Self.grow(stack, to: 16).succeeded)

            let settings = ["REDIS_URL": cluster.url]
            let gateway = try await stack.startGateway(name: "gateway-2", environment: settings)
            _ = try await stack.startDispatcher(name: "dispatcher-2", environment: settings)
            try await gateway.set(QuietNow.over, of: "ada")
            try await eventually("the push goes out") { stack.pushed()["ada-phone"] == ["before"] }
            let json = #"{"user":"ada","type":"invoice_overdue","title":"after"}"#
            let answer = try await gateway.call(
                .post, "/v1/jobs", token: Stack.token(user: "shop", scope: .service), json: json)
            #expect(answer.status == 202)
            // Parts may have the same entry id, so the answer names the stream.
            #expect(answer.body["entry"]?.string?.hasPrefix("carillon:{") == true)
            try await eventually("both are in the inbox") {
                try await Producer.inbox(of: "ada", gateway).titles.sorted() == ["after", "before"]
            }
        }
    }
    @Test("a broadcast is listed and cancelled before a dispatcher has started on a new cluster")
    func newCluster() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await Stack.with(settings: Self.settings(cluster).merging(["JOB_REPLICAS": "0"]) { $1 }) { stack in
            // It records the number of parts in PostgreSQL.
            _ = try await stack.startGateway()
            try await stack.query(
                """
                INSERT INTO carillon.broadcasts (id, org_id, job_id, job_entry, stream, fields, lane, urgency, state,
                    created_at)
                VALUES (gen_random_uuid(), '', 'b1', 'carillon:jobs/1-1', 'carillon:jobs', '[]', 'bulk', 2,
                    'expanding', now())
                """)
            let listed = try await stack.command(["broadcast", "list", "--state", "expanding"])
            #expect(listed.code == 0 && listed.output.contains("b1"), "\(listed)")
            let cancelled = try await stack.command(["broadcast", "cancel", "b1"])
            #expect(cancelled.code == 0, "\(cancelled)")
            let states = try await stack.query("SELECT state FROM carillon.broadcasts")
            #expect(try states.first?.text(0) == "cancelling")
        }
    }

    @Test("an installation grows from 16 to 64 parts; what waited in the old ones goes out once")
    func growth() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await Stack.with(settings: Self.settings(cluster).merging(["JOB_REPLICAS": "0"]) { $1 }) { stack in
            let gateway = try await stack.startGateway()
            let dispatcher = try await stack.startDispatcher()
            try await gateway.register(user: "ada", platform: "android", token: "quota-once-ada")
            try await gateway.register(user: "bob", platform: "android", token: "bob-phone")
            let job: (String) -> [(String, String)] = { [("user", $0), ("type", "payment_received")] }
            let former = Keyspace(parts: 16).part(of: "bob").jobs(.normal)
            try await stack.append(job("ada"))
            try await eventually("ada's push waits for another try") {
                try await !stack.query(
                    "SELECT 1 FROM carillon.delivery_attempts WHERE outcome = 'retry' AND reason LIKE '%QUOTA%'"
                ).isEmpty
            }
            for process in [gateway.process, dispatcher] {
                process.send(SIGTERM)
                try await process.waitForExit()
            }
            // An app appends to the streams it knows, before and after the growth.
            try await stack.append(job("bob"), stream: former)
            // An organisation's excess waits aside.
            let part = Keyspace(parts: 16).part(of: "acme")
            try await stack.connection.send("SADD", .text(part.overflows), "acme")
            try await stack.append(job("bob") + [("org", "acme")], stream: part.overflow("acme"))
            // 48 parts would take over some of the 16 names.
            #expect(try await !Self.grow(stack, to: 48).succeeded)
            #expect(try await Self.grow(stack, to: 64).succeeded)
            #expect(try await !Self.grow(stack, to: 64).succeeded)

            _ = try await stack.startGateway(name: "gateway-2")
            _ = try await stack.startDispatcher(name: "dispatcher-2")
            try await stack.append(job("bob"), stream: former)
            try await eventually("each push goes out once") {
                stack.pushed().mapValues(\.count) == ["quota-once-ada": 1, "bob-phone": 3]
            }
            #expect(stack.sandbox.faultAttempts()["quota-once-ada"] == 2)
            let tags = try await stack.connection.send("GET", "carillon:tags").string() ?? ""
            let streams = tags.split(separator: " ").map { "carillon:{\($0)}:jobs" }
            #expect(streams == Keyspace(parts: 64).parts.map { $0.jobs(.normal) })
        }
    }
}
