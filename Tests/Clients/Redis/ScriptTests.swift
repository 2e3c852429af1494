// Carillon · ScriptTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@Suite(.timeLimit(.minutes(10)))
struct ScriptTests {
    /// Returns a script that no other test has loaded.
    private static func script(_ redis: RedisClient, _ prefix: String) async throws -> RedisScript {
        let source = "return {KEYS[1], ARGV[1], '\(prefix)'}"
        let digest = try #require(try await redis.text("SCRIPT", "LOAD", .text(source)))
        try await redis.send("SCRIPT", "FLUSH")
        return RedisScript(source: source, digest: digest)
    }

    @Test("a script that Redis has forgotten is sent again")
    func forgotten() async throws {
        try await TestRedis.with { redis, prefix in
            let script = try await Self.script(redis, prefix)
            for argument in ["first", "second"] {
                let reply = try await redis.run(script, keys: [.text(prefix)], arguments: [.text(argument)])
                #expect(try reply.strings() == [prefix, argument, prefix])
            }
        }
    }

    @Test("a forgotten script in a batch keeps its place")
    func forgottenInBatch() async throws {
        try await TestRedis.with { redis, prefix in
            let script = try await Self.script(redis, prefix)
            var batch = RedisBatch()
            batch.append("ECHO", "before")
            batch.append(script, keys: [.text(prefix)], arguments: ["in a batch"])
            batch.append("ECHO", "after")
            let replies = try await redis.send(batch)
            #expect(try replies[0].string() == "before")
            #expect(try replies[1].strings() == [prefix, "in a batch", prefix])
            #expect(try replies[2].string() == "after")
        }
    }

    @Test("forgotten scripts of a batch run in their order")
    func order() async throws {
        try await TestRedis.with { redis, prefix in
            let source = "return redis.call('RPUSH', KEYS[1], ARGV[1]) -- \(prefix)"
            let digest = try #require(try await redis.text("SCRIPT", "LOAD", .text(source)))
            try await redis.send("SCRIPT", "FLUSH")
            let script = RedisScript(source: source, digest: digest)
            let words = (0..<20).map { "\($0)" }
            var batch = RedisBatch()
            for word in words { batch.append(script, keys: [.text(prefix)], arguments: [.text(word)]) }
            try await redis.send(batch)
            #expect(try await redis.send("LRANGE", .text(prefix), "0", "-1").strings() == words)
            try await redis.send("DEL", .text(prefix))
        }
    }

    @Test("a script's error is thrown")
    func scriptError() async throws {
        try await TestRedis.with { redis, prefix in
            let source = "return redis.error_reply('REFUSED by \(prefix)')"
            let digest = try #require(try await redis.text("SCRIPT", "LOAD", .text(source)))
            let script = RedisScript(source: source, digest: digest)
            let error = await #expect(throws: RedisError.self) { try await redis.run(script, keys: []) }
            #expect(error?.serverCode == "REFUSED")
        }
    }
}
