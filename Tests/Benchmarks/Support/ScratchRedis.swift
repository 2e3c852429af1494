// Carillon · ScratchRedis.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation

/// An empty database of a benchmark's own on the server of `REDIS_URL`.
struct ScratchRedis {
    let url: String
    let connection: RedisConnection

    /// Takes the first database after the usual one that nobody uses.
    static func make() async throws -> ScratchRedis {
        for number in 1...15 {
            guard var components = URLComponents(string: try Environment.require("REDIS_URL")) else { break }
            if components.scheme == "unix" {
                components.queryItems = [URLQueryItem(name: "db", value: "\(number)")]
            } else {
                components.path = "/\(number)"
            }
            guard let url = components.string else { break }
            let connection = try Environment.redis(url: url)
            if try await connection.send("DBSIZE").integer() == 0 {
                return ScratchRedis(url: url, connection: connection)
            }
            await connection.close()
        }
        throw ValidationError("REDIS_URL's server has no database that is free")
    }

    /// What the server keeps for data, in bytes.
    func usedMemory() async throws -> Int {
        let text = try await self.connection.send("INFO", "memory").string() ?? ""
        let line = text.split(whereSeparator: \.isNewline).first { $0.hasPrefix("used_memory:") }
        guard let value = line.flatMap({ Int($0.dropFirst("used_memory:".count)) }) else {
            throw ValidationError("INFO memory tells no used_memory")
        }
        return value
    }

    /// Empties it.
    func drop() async throws {
        try await self.connection.send("FLUSHDB", timeout: .seconds(60))
        await self.connection.close()
    }
}
