// Carillon · RedisConfiguration.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import FoundationEssentials

/// How a Redis connection behaves.
package struct RedisConfiguration: Sendable {
    var address: RedisAddress
    /// The name that `CLIENT LIST` shows.
    package var clientName: String
    /// PEM file of the certificate authorities for a `rediss://` server; nil means the system's.
    package var certificateAuthorityFile: String?
    package var connectTimeout: Duration = .seconds(5)
    /// The time from a call to its reply.
    package var commandTimeout: Duration = .seconds(5)
    /// The limit on commands that wait for a connection or a reply; more are refused with
    /// `overloaded`.
    var maximumWaitingCommands = 65_536
    /// The limit on bytes that wait to be written; more are refused with `overloaded`.
    var maximumWaitingBytes = 64 * 1024 * 1024
    var reconnect = Backoff(base: .milliseconds(50), limit: .seconds(2))
    /// Whether calls wait for a server that cannot be reached; if not, the first failure to connect
    /// fails them.
    package var waitsForServer = true

    package init(address: RedisAddress, clientName: String) {
        self.address = address
        self.clientName = clientName
    }
}

/// The address and the login of a Redis server, read from a `REDIS_URL`.
///
/// Forms: `redis://[user[:password]@]host[:port][/database]`, `rediss://…` for TLS,
/// `unix:///path/to.sock[?db=N]` for a local socket.
package struct RedisAddress: Sendable, Equatable, CustomStringConvertible {
    enum Endpoint: Sendable, Equatable {
        case tcp(host: String, port: Int)
        case unixSocket(path: String)
    }

    let endpoint: Endpoint
    let usesTLS: Bool
    let username: String?
    let password: String?
    let database: Int

    /// Reads a Redis URL.
    ///
    /// - Throws: ``RedisError`` with code `configuration`; its message never holds the password.
    package init(url: String) throws(RedisError) {
        guard let components = URLComponents(string: url), let scheme = components.scheme?.lowercased() else {
            throw RedisError(.configuration, "is not a URL; use redis://host:port/database")
        }
        self.username = components.user.flatMap { $0.isEmpty ? nil : $0 }
        self.password = components.password
        switch scheme {
        case "redis", "rediss":
            guard let host = components.host, !host.isEmpty else {
                throw RedisError(.configuration, "has no host; use redis://host:port/database")
            }
            let bare = host.hasPrefix("[") && host.hasSuffix("]") ? String(host.dropFirst().dropLast()) : host
            self.endpoint = .tcp(host: bare, port: components.port ?? 6379)
            self.usesTLS = scheme == "rediss"
            self.database = try Self.database(components.path.drop { $0 == "/" })
        case "unix":
            guard !components.path.isEmpty else {
                throw RedisError(.configuration, "has no socket path; use unix:///path/to.sock")
            }
            self.endpoint = .unixSocket(path: components.path)
            self.usesTLS = false
            let item = components.queryItems?.first { $0.name == "db" }?.value
            self.database = try Self.database(Substring(item ?? ""))
        case "redis+cluster":
            throw RedisError(.configuration, "has the unsupported scheme redis+cluster://; use redis://")
        default:
            throw RedisError(
                .configuration, "has the unsupported scheme \(scheme)://; use redis://, rediss:// or unix://")
        }
    }

    private static func database(_ text: Substring) throws(RedisError) -> Int {
        guard !text.isEmpty else { return 0 }
        guard let number = Int(text), number >= 0 else {
            throw RedisError(.configuration, "has a database that is not a number")
        }
        return number
    }

    /// The address without credentials, safe to log.
    package var description: String {
        switch self.endpoint {
        case .tcp(let host, let port): "\(self.usesTLS ? "rediss" : "redis")://\(host):\(port)/\(self.database)"
        case .unixSocket(let path): "unix://\(path)?db=\(self.database)"
        }
    }
}
