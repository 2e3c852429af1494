// Carillon · CommandTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Clients

@Suite(.timeLimit(.minutes(10)))
struct CommandTests {
    @Test("replies keep their kind")
    func kinds() async throws {
        try await TestRedis.with { redis, prefix in
            let key = RedisArgument.text(prefix + "key")
            #expect(try await redis.text("SET", key, "value") == "OK")
            #expect(try await redis.text("GET", key) == "value")
            #expect(try await redis.text("GET", .text(prefix + "missing")) == nil)
            #expect(try await redis.number("STRLEN", key) == 5)
            let values = try await redis.send("MGET", key, .text(prefix + "missing"), key).strings()
            #expect(values == ["value", "value"])
        }
    }

    @Test("a time after the year 9999 is refused")
    func time() async throws {
        try await TestRedis.with { redis, _ in
            let now = try await redis.send("TIME").time()
            #expect(now > Timestamp(seconds: 1_000_000_000))
            for parts in ["'\(Int64.max)', '0'", "'-1', '0'", "'1', '\(Int64.max)'", "'1'"] {
                let reply = try await redis.send("EVAL", .text("return {\(parts)}"), 0)
                #expect(throws: RedisError.self) { try reply.time() }
            }
        }
    }

    @Test("bytes of any value come back unchanged")
    func bytes() async throws {
        try await TestRedis.with { redis, prefix in
            let value = (0..<200_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
            try await redis.send("SET", .text(prefix + "bytes"), .bytes(value))
            guard case .bytes(let stored) = try await redis.send("GET", .text(prefix + "bytes")) else {
                Issue.record("GET returned no bulk string")
                return
            }
            #expect(stored == value)
        }
    }

    @Test("reads a reply of more than a million elements")
    func large() async throws {
        try await TestRedis.with { redis, _ in
            try await redis.send("PING")
            let session = redis.session
            let script = "local all = {} for n = 1, 1000001 do all[n] = n end return all"
            var cursor = try #require(try await redis.send("EVAL", .text(script), 0).cursor())
            let count = try cursor.array()
            let first = try cursor.integer()
            #expect(count == 1_000_001 && first == 1 && redis.session == session)
        }
    }

    @Test("encoded arguments equal plain ones")
    func encoded() async throws {
        try await TestRedis.with { redis, prefix in
            let values =
                [0, 1, 9, 10, 11, 99, 100, 101, 128, 4_096].map { String(repeating: "é", count: $0) + "x" } + [""]
            var bytes = RedisBatch.encoded("RPUSH", .text(prefix + "list"))
            for value in values { RedisBatch.encode(value, to: &bytes) }
            var batch = RedisBatch()
            batch.begin(argumentCount: 2 + values.count)
            batch.arguments(encoded: bytes)
            let replies = try await redis.send(batch)
            #expect(try replies.first?.integer() == Int64(values.count))
            #expect(try await redis.send("LRANGE", .text(prefix + "list"), "0", "-1").strings() == values)
        }
    }

    @Test("a server that is busy with a script counts as one that cannot serve now")
    func busy() async throws {
        var options = RedisServer.Options()
        options.arguments = ["--lua-time-limit", "50"]
        let server = try await RedisServer.start(options)
        try await TestRedis.with(try server.configuration()) { redis in
            try await TestRedis.with(try server.configuration()) { other in
                try await other.send("PING")
                async let script = redis.failure(of: "EVAL", "while true do end", 0, timeout: .seconds(60))
                var error: RedisError?
                try await eventually("the server is busy") {
                    error = await other.failure(of: "GET", "key")
                    return error?.message?.hasPrefix("BUSY ") == true
                }
                try await other.send("SCRIPT", "KILL")
                #expect(error?.code == .unavailable)
                #expect(await script != nil)
            }
        }
    }

    @Test("an error that Redis 6.2 reports from inside a script keeps its code")
    func scriptError() {
        let prefix = "ERR Error running script (call to f_0123abcd): @user_script:4: @user_script: 4: "
        let error = RedisError(reply: prefix + "-READONLY You can't write against a read only replica.")
        #expect(error == RedisError(.unavailable, "READONLY You can't write against a read only replica."))
        #expect(error.isOfReplica)
        #expect(RedisError(reply: prefix + "-OOM command not allowed").isOutOfMemory)
        #expect(RedisError(reply: prefix + "Unknown command").serverCode == "ERR")
    }

    @Test("a batch is answered in order with errors in place")
    func batch() async throws {
        try await TestRedis.with { redis, prefix in
            let key = RedisArgument.text(prefix + "key")
            var batch = RedisBatch()
            batch.append("SET", key, "text")
            batch.append("INCR", key)
            batch.append("APPEND", key, "!")
            batch.append("GET", key)
            let replies = try await redis.send(batch)
            #expect(replies.count == 4)
            #expect(try replies[0].string() == "OK")
            #expect(throws: RedisError.self) { try replies[1].integer() }
            #expect(try replies[2].integer() == 5)
            #expect(try replies[3].string() == "text!")
        }
    }

    @Test("a batch whose replies must all be good throws its first error, and runs to its end")
    func checkedBatch() async throws {
        try await TestRedis.with { redis, prefix in
            let key = RedisArgument.text(prefix + "key")
            var batch = RedisBatch()
            batch.append("SET", key, "text")
            batch.append("GET", key)
            let replies = try await redis.run(batch)
            #expect(try replies[1].string() == "text")
            batch.append("LLEN", key)
            batch.append("INCR", key)
            batch.append("APPEND", key, "!")
            let faulty = batch
            let error = await #expect(throws: RedisError.self) { try await redis.run(faulty) }
            #expect(error?.serverCode == "WRONGTYPE")
            #expect(try await redis.text("GET", key) == "text!")
        }
    }

    @Test("an empty batch sends nothing")
    func emptyBatch() async throws {
        try await TestRedis.with { redis, _ in
            let replies = try await redis.send(RedisBatch())
            #expect(replies.isEmpty)
        }
    }

    @Test("an error reply is thrown with the server's code")
    func errorReply() async throws {
        try await TestRedis.with { redis, prefix in
            let key = RedisArgument.text(prefix + "list")
            try await redis.send("RPUSH", key, "secret-element")
            let error = await redis.failure(of: "GET", key)
            #expect(error?.code == .server)
            #expect(error?.serverCode == "WRONGTYPE")
            #expect(error?.description.contains("secret-element") == false)
            // The connection still works.
            #expect(try await redis.number("LLEN", key) == 1)
        }
    }

    @Test("concurrent calls share the connection and get their own replies")
    func concurrent() async throws {
        try await TestRedis.with { redis, prefix in
            let echoes = try await withThrowingTaskGroup(of: Bool.self) { group in
                for number in 0..<2_000 {
                    group.addTask {
                        let text = "\(prefix)\(number)"
                        if number.isMultiple(of: 3) {
                            var batch = RedisBatch()
                            batch.append("ECHO", .text(text))
                            batch.append("ECHO", .text(text + "!"))
                            return try await redis.send(batch).map { try $0.string() } == [text, text + "!"]
                        }
                        return try await redis.text("ECHO", .text(text)) == text
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(echoes.count == 2_000)
            #expect(echoes.allSatisfy { $0 })
            let clients = try await redis.text("CLIENT", "LIST", "ID", .text(try await Self.identifier(redis)))
            #expect(clients?.split(separator: "\n").count == 1)
        }
    }

    private static func identifier(_ redis: RedisClient) async throws -> String {
        try await redis.text("CLIENT", "ID") ?? ""
    }

    @Test("nested arrays are read in order")
    func nested() async throws {
        try await TestRedis.with { redis, prefix in
            let stream = RedisArgument.text(prefix + "stream")
            try await redis.send("XADD", stream, "1-1", "user", "u1", "title", "hello")
            try await redis.send("XADD", stream, "1-2", "user", "u2")
            var cursor = try #require(try await redis.send("XRANGE", stream, "-", "+").cursor())
            #expect(try cursor.array() == 2)
            #expect(try cursor.array() == 2)
            #expect(try cursor.string() == "1-1")
            #expect(try cursor.array() == 4)
            #expect(try [cursor.string(), cursor.string(), cursor.string()] == ["user", "u1", "title"])
            #expect(try cursor.string() == "hello")
            try cursor.skip()
            #expect(throws: RedisError.self) { try cursor.skip() }
        }
    }
}

@Suite(.timeLimit(.minutes(10)))
struct BlockingReadTests {
    @Test("a blocking read on its own connection waits for an entry")
    func waits() async throws {
        try await TestRedis.with { redis, prefix in
            let stream = RedisArgument.text(prefix + "stream")
            try await redis.send("XGROUP", "CREATE", stream, "readers", "$", "MKSTREAM")
            try await TestRedis.with(try await TestRedis.configuration(clientName: "blocking")) { reader in
                let identifier = try #require(try await reader.text("CLIENT", "ID"))
                async let read = reader.send(
                    "XREADGROUP", "GROUP", "readers", "r1", "COUNT", "10", "BLOCK", "20000", "STREAMS", stream, ">",
                    timeout: .seconds(25))
                try await eventually("the reader blocks") {
                    let client = try await redis.text("CLIENT", "LIST", "ID", .text(identifier))
                    return client?.contains("flags=b") == true
                }
                try await redis.send("XADD", stream, "5-1", "user", "u1")
                var cursor = try #require(try await read.cursor())
                #expect(try cursor.array() == 1)
                #expect(try cursor.array() == 2)
                #expect(try cursor.string() == prefix + "stream")
                #expect(try cursor.array() == 1)
                #expect(try cursor.array() == 2)
                #expect(try cursor.string() == "5-1")
            }
        }
    }

    @Test("another connection ends a blocking read before its time")
    func unblocked() async throws {
        try await TestRedis.with { redis, prefix in
            try await TestRedis.with(try await TestRedis.configuration(clientName: "blocking")) { reader in
                let identifier = try #require(try await reader.text("CLIENT", "ID"))
                async let read = reader.send("BLPOP", .text(prefix + "empty"), "600", timeout: .seconds(600))
                try await eventually("the reader blocks") {
                    let client = try await redis.text("CLIENT", "LIST", "ID", .text(identifier))
                    return client?.contains("flags=b") == true
                }
                await reader.unblock(through: redis)
                let reply = try await read
                #expect(try reply.cursor() == nil)
            }
        }
    }

    @Test("a blocking read without entries returns null")
    func null() async throws {
        try await TestRedis.with { redis, prefix in
            let reply = try await redis.send("BLPOP", .text(prefix + "empty"), "0.05")
            #expect(try reply.cursor() == nil)
        }
    }
}
