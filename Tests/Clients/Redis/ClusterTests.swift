// Carillon · ClusterTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

@testable import Clients

/// Addresses that name a cluster, and the slots of keys.
struct ClusterAddressTests {
    @Test("reads hosts and login")
    func reads() throws {
        let address = try RedisAddress(url: "rediss+cluster://app:p%40w@a.example,[::1]:7000/0")
        guard case .cluster(let servers) = address.endpoint else {
            Issue.record("\(address.endpoint)")
            return
        }
        #expect(servers.map(\.description) == ["a.example:6379", "[::1]:7000"])
        #expect(address.usesTLS && address.username == "app" && address.password == "p@w")
        #expect(address.description == "rediss+cluster://a.example:6379,[::1]:7000")
    }

    @Test(
        "names what is wrong, without the password",
        arguments: [
            ("redis+cluster://u:hunter2@a:1,,b", "host:port"), ("redis+cluster://u:hunter2@a:1/3", "database 0"),
            ("http+cluster://u:hunter2@a", "http+cluster"),
        ])
    func refuses(url: String, word: String) {
        let error = #expect(throws: RedisError.self) { try RedisAddress(url: url) }
        #expect(error?.code == .configuration)
        #expect(error?.message?.contains(word) == true && error?.message?.contains("hunter2") == false)
    }

    @Test("finds the route of every form of command")
    func routes() {
        func slot(_ key: String) -> WireCommand.Route { .slot(RedisSlot.of(Array(key.utf8))) }
        let table: [([RedisArgument], WireCommand.Route)] = [
            (["GET", "key"], slot("key")), (["XADD", "stream", "*", "a", "b"], slot("stream")),
            (["XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "stream", ">"], slot("stream")),
            (["XGROUP", "CREATE", "stream", "g", "0"], slot("stream")),
            (["XINFO", "GROUPS", "stream"], slot("stream")), (["EVALSHA", "abc", 1, "key", "x"], slot("key")),
            (["EVAL", "return 1", 0], .first), (["SPUBLISH", "channel", "x"], slot("channel")),
            (["PUBLISH", "channel", "x"], .first), (["INFO", "server"], .first), (["TIME"], .first),
            (["WAIT", 1, 100], .everyServer),
        ]
        var batch = RedisBatch()
        for (command, _) in table { batch.append(command) }
        #expect(WireCommand.split(batch).map(\.route) == table.map(\.1))
    }

    @Test("a probe reads one key of each of a batch's slots")
    func probe() {
        var batch = RedisBatch()
        for stream in ["{a}:one", "b", "{a}:two"] { batch.append("XADD", .text(stream), "*", "field", "value") }
        batch.append("PING")
        let slots = ["a", "b"].map { WireCommand.Route.slot(RedisSlot.of(Array($0.utf8))) }
        #expect(WireCommand.split(batch.probe).map(\.route) == slots)
    }
}

/// A batch on its way through a cluster.
struct ClusterExchangeTests {
    @Test("INFO and TIME follow the batch's key to another master; nothing else runs twice")
    func redirected() throws {
        let old = RedisAddress.Server(host: "old", port: 1)
        let new = RedisAddress.Server(host: "new", port: 1)
        let slot = RedisSlot.of(Array("key".utf8))
        var map = RedisClusterMap()
        map.move(slot, to: old)
        var batch = RedisBatch()
        batch.append("INFO", "server")
        batch.append("TIME")
        batch.append("PUBLISH", "channel", "x")
        batch.append("GET", "key")
        var exchange = ClusterExchange(batch)
        let shares = exchange.shares(by: map, general: old)
        #expect(shares.map(\.server) == [old])
        let moved = RedisError(reply: "MOVED \(slot) new:1")
        let replies: [RedisReply] = [.status("old"), .status("old"), .integer(1), .error(moved)]
        let share = try #require(shares.first)
        exchange.receive(replies, of: share) { reply in
            guard case .error(let error) = reply else { return nil }
            return RedisRedirect(error, from: old)
        }
        map.move(slot, to: new)
        let rest = exchange.shares(by: map, general: old)
        #expect(rest.map(\.server) == [new] && rest.map(\.positions) == [[0, 1, 3]])
        let others: [RedisReply] = [.status("new"), .status("new"), .status("value")]
        let again = try #require(rest.first)
        exchange.receive(others, of: again) { _ in nil }
        #expect(exchange.rest.isEmpty)
        let results = try exchange.finish().map { (reply) throws(RedisError) in try reply.string() }
        #expect(results == ["new", "new", "1", "value"])
    }
}

/// Clients of a real cluster.
///
/// One after the other: `TestCluster` has `--cluster-node-timeout 1500`, which masters exceed on a
/// busy machine.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct ClusterTests {
    @Test("agrees with Redis on the slots of 10,000 keys")
    func slots() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        var generator = SeededGenerator(seed: 7)
        let odd = ["", "{}", "}x", "a}b", "{a", "{a}b", "{}{a}", "é", "{é}x", "{{a}}"]
        let keys =
            odd
            + (0..<9_990).map { _ in
                String(
                    (0..<Int.random(in: 0..<12, using: &generator)).map { _ in
                        "ab{}é:1".randomElement(using: &generator)!
                    })
            }
        try await TestRedis.with(try cluster.configuration()) { redis in
            var batch = RedisBatch()
            for key in keys { batch.append("CLUSTER", "KEYSLOT", .text(key)) }
            for (key, reply) in zip(keys, try await redis.send(batch)) {
                let slot = try reply.integer()
                #expect(Int(slot) == RedisSlot.of(Array(key.utf8)), "\(key)")
            }
        }
    }

    @Test("splits batches by master, and gathers the replies in order")
    func batches() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await TestRedis.with(try cluster.configuration()) { redis in
            var writes = RedisBatch()
            for number in 0..<300 { writes.append("SET", .text("key-\(number)"), .text("\(number)")) }
            try await redis.run(writes)
            var reads = RedisBatch()
            for number in 0..<300 {
                reads.append("GET", .text("key-\(number)"))
                reads.append("LPUSH", .text("list"), .text("\(number)"))
            }
            let replies = try await redis.send(reads)
            for number in 0..<300 {
                let value = try replies[2 * number].string()
                let length = try replies[2 * number + 1].integer()
                #expect(value == "\(number)" && length == Int64(number + 1))
            }
            // Each master has its part.
            for server in cluster.servers {
                try await TestRedis.with(try server.configuration()) { one in
                    let count = try await one.send("DBSIZE").integer()
                    #expect(count > 50)
                }
            }
        }
    }

    @Test("follows a slot while it moves, and loses nothing")
    func moves() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let fourth = try await cluster.join()
        let slot = RedisSlot.of(Array("{tag}".utf8))
        try await TestRedis.with(try cluster.configuration()) { redis in
            for number in 0..<20 { try await redis.send("SET", .text("{tag}\(number)"), "0") }
            let source = try await cluster.master(of: slot)
            var rounds: Int64 = 0
            try await cluster.move(slot, from: source, to: fourth) {
                rounds += 1
                var batch = RedisBatch()
                for number in 0..<20 { batch.append("INCR", .text("{tag}\(number)")) }
                // New keys are made at the target.
                batch.append("INCR", .text("{tag}new-\(rounds)"))
                let values = try await redis.send(batch).map { (reply) throws(RedisError) in try reply.integer() }
                #expect(values == Array(repeating: rounds, count: 20) + [1])
            }
            #expect(rounds == 21)
            let value = try await redis.text("GET", "{tag}7")
            #expect(value == "\(rounds)")
            try await TestRedis.with(try fourth.configuration()) { one in
                let count = try await one.send("DBSIZE").integer()
                #expect(count == 20 + rounds)
            }
        }
    }

    @Test("says that a slot is moving while the keys of a command are on two servers")
    func split() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let fourth = try await cluster.join()
        let slot = RedisSlot.of(Array("{tag}".utf8))
        try await TestRedis.with(try cluster.configuration()) { redis in
            for number in 0..<2 { try await redis.send("SET", .text("{tag}\(number)"), "0") }
            var messages: [String?] = []
            try await cluster.move(slot, from: try await cluster.master(of: slot), to: fourth) {
                messages.append(await redis.failure(of: "EXISTS", "{tag}0", "{tag}1")?.message)
            }
            // Before the first key moves, between the two, and after the second.
            #expect(messages == [nil, "the slot is moving; its keys are on two servers", nil])
        }
    }

    @Test("a slot that gets another owner starts a new session, as the owner may lack the last writes")
    func sessions() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let slot = RedisSlot.of(Array("{tag}".utf8))
        try await TestRedis.with(try cluster.configuration()) { redis in
            try await redis.send("SET", "{tag}", "1")
            let source = try await cluster.master(of: slot)
            let other = cluster.servers.first { $0.port != source.port }
            let target = try #require(other)
            let session = redis.session
            try await cluster.move(slot, from: source, to: target)
            let value = try await redis.text("GET", "{tag}")
            #expect(value == "1")
            #expect(redis.session > session)
        }
    }

    @Test("asks for the map when a server says that its cluster is down, as others may serve its slots")
    func down() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        var configuration = try cluster.configuration()
        // Not while this test runs.
        configuration.clusterRefresh = .seconds(3_600)
        // Copies of the configuration share this map, which is soon out of date.
        try await TestRedis.with(configuration) { redis in
            _ = try await redis.send("EXISTS", "key")
        }
        try await cluster.expel(cluster.number(ofKey: "key"))
        try await TestRedis.with(configuration) { redis in
            let failure = await redis.failure(of: "EXISTS", "key")
            #expect(failure?.message?.hasPrefix("CLUSTERDOWN") == true)
            try await eventually("the new owner answers") { await redis.failure(of: "EXISTS", "key") == nil }
        }
    }

    @Test("commands that must not wait fail at once while their server is away; the others run")
    func impatient() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        try await TestRedis.with(try cluster.configuration()) { redis in
            let keys = (0..<100).map { "key-\($0)" }
            let lost = keys.first { cluster.number(ofKey: $0) == 0 }
            let kept = keys.first { cluster.number(ofKey: $0) != 0 }
            var batch = RedisBatch()
            for key in [try #require(lost), try #require(kept)] { batch.append("SET", .text(key), "1") }
            try await redis.run(batch)
            try await cluster.lose(0)
            let writes = batch
            try await eventually("the server is known to be away") {
                let replies = try? await redis.send(writes, timeout: .seconds(1), isPatient: false)
                guard let replies, case .error(let error) = replies[0], (try? replies[1].checked()) != nil
                else { return false }
                return error.message?.hasSuffix("is away") == true
            }
        }
    }

    @Test("goes on at the replica that takes over, with all that it confirmed")
    func failover() async throws {
        let cluster = try await TestCluster.start()
        let slot = RedisSlot.of(Array("counter".utf8))
        var configuration = try cluster.configuration()
        configuration.commandTimeout = .seconds(20)
        try await TestRedis.with(configuration) { redis in
            try await redis.send("SET", "counter", "0")
            let session = redis.session
            async let counted = Self.count(redis, until: session + 1)
            try await cluster.failOver(slot: slot)
            let (sure, unsure) = try await counted
            let count = Int(try await redis.text("GET", "counter") ?? "") ?? 0
            #expect((sure...sure + unsure).contains(count), "\(count) of \(sure) and \(unsure)")
        }
    }

    /// Adds to a counter until a session answers, and counts the writes by whether a replica has
    /// confirmed them.
    private static func count(_ redis: RedisClient, until session: Int) async throws -> (sure: Int, unsure: Int) {
        var (sure, unsure) = (0, 0)
        var last = ""
        do {
            try await eventually("the new master answers") {
                var batch = RedisBatch()
                batch.append("INCR", "counter")
                // The replica may lack what it has not confirmed.
                batch.append("WAIT", 1, 100)
                var replies: [RedisReply]?
                do { replies = try await redis.send(batch) } catch { last = "\(error)" }
                if replies != nil { last = "answered in session \(redis.session), awaited \(session)" }
                if (try? replies?[1].integer()) == 1 { sure += 1 } else { unsure += 1 }
                return redis.session >= session && (try? replies?[0].integer()) != nil
            }
        } catch {
            Issue.record("in the end: \(last)")
            throw error
        }
        return (sure, unsure)
    }

    @Test("a write waits for the replicas of every master it went to")
    func replicas() async throws {
        let cluster = try await TestCluster.start()
        try await TestRedis.with(try cluster.configuration()) { redis in
            var batch = RedisBatch()
            for number in 0..<30 { batch.append("SET", .text("key-\(number)"), "1") }
            batch.append("WAIT", 1, 5_000)
            let whole = try await redis.send(batch, timeout: .seconds(10)).last?.integer()
            #expect(whole == 1)
            try await cluster.servers[4].stall()
            batch = RedisBatch()
            for number in 0..<30 { batch.append("SET", .text("key-\(number)"), "2") }
            batch.append("WAIT", 1, 300)
            let partial = try await redis.send(batch, timeout: .seconds(10)).last?.integer()
            #expect(partial == 0)
            cluster.servers[4].resume()
        }
    }

    /// Whether a blocking read found an entry.
    private static func read(_ reader: RedisClient) async throws -> Bool {
        for _ in 0..<10 {
            do throws(RedisError) {
                let reply = try await reader.send(
                    "XREADGROUP", "GROUP", "g", "c", "BLOCK", 20_000, "STREAMS", "stream", ">", timeout: .seconds(30))
                return try reply.cursor() != nil
            } catch {
                // The server ends it with UNBLOCKED as the stream leaves.
                guard error.code == .unavailable else { throw error }
            }
        }
        return false
    }

    @Test("a blocked read ends when it is told to, and follows its stream to another master")
    func blocking() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let fourth = try await cluster.join()
        let slot = RedisSlot.of(Array("stream".utf8))
        let configuration = try cluster.configuration()
        try await TestRedis.with(configuration) { redis in
            try await TestRedis.with(configuration) { reader in
                try await redis.send("XGROUP", "CREATE", "stream", "g", "0", "MKSTREAM")
                let source = try await cluster.master(of: slot)
                func waitUntilBlocked(at server: RedisServer) async throws {
                    try await TestRedis.with(try server.configuration()) { one in
                        try await eventually("the read blocks") {
                            try await one.send("INFO", "clients").string()?.contains("blocked_clients:1") == true
                        }
                    }
                }
                async let ended = Self.read(reader)
                try await waitUntilBlocked(at: source)
                await reader.unblock(through: redis)
                #expect(try await !ended)
                async let moved = Self.read(reader)
                try await waitUntilBlocked(at: source)
                try await cluster.move(slot, from: source, to: fourth)
                try await redis.send("XADD", "stream", "*", "a", "b")
                #expect(try await moved)
            }
        }
    }

    @Test("a stream of 100,000 entries moves while it is written and read, with every entry once")
    func streamMoves() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let fourth = try await cluster.join()
        let configuration = try cluster.configuration()
        let total = 110_000
        try await TestRedis.with(configuration) { redis in
            try await redis.send("XGROUP", "CREATE", "stream", "g", "0", "MKSTREAM")
            for first in stride(from: 0, to: 100_000, by: 1_000) {
                try await Self.append(first..<first + 1_000, through: redis)
            }
            let numbers = try await TestRedis.with(configuration) { reader in
                async let read = Self.readAll(total, through: reader)
                // The last entries are written while the stream moves, and after.
                async let written: Void = {
                    for first in stride(from: 100_000, to: total, by: 20) {
                        try await Self.append(first..<first + 20, through: redis)
                    }
                }()
                let slot = RedisSlot.of(Array("stream".utf8))
                try await cluster.move(slot, from: try await cluster.master(of: slot), to: fourth)
                try await written
                return try await read
            }
            #expect(numbers.sorted() == Array(0..<total))
            let pending = try await redis.send("XPENDING", "stream", "g").cursor()
            var summary = try #require(pending)
            _ = try summary.array()
            let left = try summary.integer()
            #expect(left == 0)
        }
    }

    private static func append(_ numbers: Range<Int>, through redis: RedisClient) async throws {
        var batch = RedisBatch()
        for number in numbers { batch.append("XADD", "stream", "*", "n", .integer(Int64(number))) }
        try await redis.run(batch)
    }

    /// Reads and acknowledges entries of ``append(_:through:)`` until it has `count` of them.
    private static func readAll(_ count: Int, through reader: RedisClient) async throws -> [Int] {
        var numbers: [Int] = []
        while numbers.count < count {
            do throws(RedisError) {
                let reply = try await reader.send(
                    "XREADGROUP", "GROUP", "g", "c", "COUNT", 256, "BLOCK", 1_000, "STREAMS", "stream", ">",
                    timeout: .seconds(30))
                guard var cursor = try reply.cursor(), try cursor.array() != nil else { continue }
                _ = try cursor.array()
                try cursor.skip()
                var acknowledgement: [RedisArgument] = ["XACK", "stream", "g"]
                for _ in 0..<(try cursor.array() ?? 0) {
                    _ = try cursor.array()
                    acknowledgement.append(.text(try cursor.string() ?? ""))
                    _ = try cursor.array()
                    try cursor.skip()
                    numbers.append(Int(try cursor.string() ?? "") ?? -1)
                }
                var batch = RedisBatch()
                batch.append(acknowledgement)
                try await reader.run(batch)
            } catch {
                // The server ends a blocked read as the stream leaves.
                guard error.code == .unavailable else { throw error }
            }
        }
        return numbers
    }

    @Test("names the reason when no server of the cluster answers")
    func unreachable() async throws {
        let port = try FreePort.next()
        var configuration = RedisConfiguration(
            address: try RedisAddress(url: "redis+cluster://127.0.0.1:\(port)"), clientName: "test")
        configuration.waitsForServer = false
        try await TestRedis.with(configuration) { redis in
            let error = await redis.failure(of: "PING")
            #expect(error?.code == .unavailable)
            #expect(error?.message?.contains("no server of the cluster answers") == true)
        }
    }

    @Test("a cancelled command does not wait for a cluster that no server answers for")
    func cancelledUnreachable() async throws {
        let port = try FreePort.next()
        let configuration = RedisConfiguration(
            address: try RedisAddress(url: "redis+cluster://127.0.0.1:\(port)"), clientName: "test")
        try await TestRedis.with(configuration) { redis in
            let start = ContinuousClock.now
            let call = Task { await redis.failure(of: "PING", timeout: .seconds(60)) }
            call.cancel()
            #expect(await call.value?.code == .unavailable)
            #expect(start.duration(to: .now) < .seconds(30))
        }
    }

    @Test("a command waits for keys on two servers even if its task is cancelled")
    func cancelledSplit() async throws {
        let cluster = try await TestCluster.start(replicas: false)
        let slot = RedisSlot.of(Array("{a}".utf8))
        let source = try await cluster.master(of: slot)
        let target = try #require(cluster.servers.first { $0.port != source.port })
        try await TestRedis.with(try cluster.configuration()) { redis in
            try await redis.send("SET", "{a}1", "x")
            try await cluster.move(slot, from: source, to: target) {
                let start = ContinuousClock.now
                let call = Task { await redis.failure(of: "MGET", "{a}1", "{a}2", timeout: .seconds(60)) }
                call.cancel()
                #expect(await call.value?.message?.contains("its keys are on two servers") == true)
                // At least every other of the 40 attempts is followed by 25 ms.
                #expect(start.duration(to: .now) > .milliseconds(400))
            }
        }
    }

    @Test("says what is wrong with a server that is in no cluster")
    func noCluster() async throws {
        let server = try await RedisServer.start()
        var configuration = RedisConfiguration(
            address: try RedisAddress(url: server.url.replacing("redis:", with: "redis+cluster:")), clientName: "test")
        configuration.waitsForServer = false
        try await TestRedis.with(configuration) { redis in
            let error = await redis.failure(of: "PING")
            #expect(error?.message?.contains("cluster support disabled") == true)
        }
    }
}
