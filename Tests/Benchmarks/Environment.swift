// Carillon · Environment.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Crypto
import Foundation
import Logging
import NIOPosix

/// What `deploy/up` wrote into its `env` file.
enum Environment {
    static func require(_ name: String) throws -> String {
        guard let value = ProcessInfo.processInfo.environment[name], !value.isEmpty else {
            throw ValidationError("\(name) is not set; run this by deploy/bench")
        }
        return value
    }

    static let eventLoops = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    static let logger = Logger(label: "benchmarks")

    /// For what is told without being asked for.
    static let quiet = Logger(label: "benchmarks") { _ in SwiftLogNoOpLogHandler() }

    static func redis() throws -> RedisConnection {
        try self.redis(url: self.require("REDIS_URL"))
    }

    static func redis(url: String) throws -> RedisConnection {
        try RedisConnection(
            RedisConfiguration(address: RedisAddress(url: url), clientName: "benchmarks"),
            on: self.eventLoops.next(),
            logger: self.logger
        )
    }

    static func database(connections: Int = 1) throws -> PostgresPool {
        var configuration = PostgresConfiguration(
            connectionString: try self.require("DATABASE_URL"),
            applicationName: "benchmarks"
        )
        configuration.connections = connections
        configuration.timeout = .seconds(300)
        return try PostgresPool(configuration, logger: self.logger)
    }

    /// A token of HS256 for `user`, good for a day.
    static func token(user: String) throws -> String {
        let secret = try self.require("AUTH_JWT_SECRET")
        func part(_ bytes: some Sequence<UInt8>) -> String {
            Data(bytes).base64EncodedString().replacingOccurrences(of: "+", with: "-")
                .replacingOccurrences(of: "/", with: "_").replacingOccurrences(of: "=", with: "")
        }
        let now = Int(Date.now.timeIntervalSince1970)
        let head = part(Array(#"{"alg":"HS256","typ":"JWT"}"#.utf8))
        let claims = part(Array(#"{"sub":"\#(user)","iat":\#(now),"exp":\#(now + 86_400)}"#.utf8))
        let code = HMAC<SHA256>.authenticationCode(
            for: Data("\(head).\(claims)".utf8),
            using: SymmetricKey(data: Data(secret.utf8))
        )
        return "\(head).\(claims).\(part(code))"
    }

    /// The resident memory of a process in bytes.
    static func residentMemory(pid: Int) -> Int {
        let status = (try? String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8)) ?? ""
        let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") } ?? ""
        return (line.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0) * 1_024
    }
}
