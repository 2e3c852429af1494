// Carillon · BlockingReadTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Support
import Testing

@Suite(.timeLimit(.minutes(10)))
struct BlockingReadTests {
    @Test
    func readWaitsForAnEntryOnAConnectionOfItsOwn() async throws {
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

    @Test
    func readThatFindsNothingEndsWithNull() async throws {
        try await TestRedis.with { redis, prefix in
            let reply = try await redis.send("BLPOP", .text(prefix + "empty"), "0.05")
            #expect(try reply.cursor() == nil)
        }
    }
}
