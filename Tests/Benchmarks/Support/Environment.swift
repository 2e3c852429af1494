// Carillon · Environment.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Crypto
import Foundation
import Logging
import NIOPosix
import Support

/// The settings that `deploy/up` wrote into its `env` file.
enum Environment {
    static func require(_ name: String) throws -> String {
        guard let value = ProcessInfo.processInfo.environment[name], !value.isEmpty else {
            throw ValidationError("\(name): not set; run this through deploy/bench")
        }
        return value
    }

    static let eventLoops = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    static let logger = Logger(label: "benchmarks")

    /// Drops log messages that a benchmark does not need.
    static let quiet = Logger(label: "benchmarks") { _ in SwiftLogNoOpLogHandler() }

    static func redis() throws -> RedisClient {
        try self.redis(url: self.require("REDIS_URL"))
    }

    static func redis(url: String) throws -> RedisClient {
        try RedisClient(
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

    /// Returns an HS256 token for `user` that is valid for a day.
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
}

/// Programs that run to completion, such as yardsticks.
enum Tool {
    /// Runs `program`, a path or a name in PATH, and returns its output.
    ///
    /// - Throws: `ValidationError` if it fails.
    static func run(
        _ program: String,
        _ arguments: [String],
        environment: [String: String] = [:],
        isQuiet: Bool = false
    ) throws -> String {
        let (exit, output) = try Spawn.run(
            program, arguments, environment: environment, errors: isQuiet ? "/dev/null" : nil)
        guard exit == .code(0) else { throw ValidationError("\(program) failed with \(exit)") }
        return output
    }

    /// Returns a member of the JSON line that a yardstick prints.
    static func figure(_ name: String, in output: String) throws -> Double {
        let line = try JSONSerialization.jsonObject(with: Data(output.utf8)) as? [String: Any]
        guard let value = line?[name] as? Double else { throw ValidationError("the yardstick printed no \(name)") }
        return value
    }
}
