// Carillon · RedisAddress.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import FoundationEssentials
import NIOCore

/// The address and the login of a Redis server, read from a `REDIS_URL`.
///
/// Forms:
///
/// - `redis://[user[:password]@]host[:port][/database]`, or `rediss://…` for TLS.
/// - `unix:///path/to.sock[?db=N]` for a local socket.
/// - `redis+sentinel://[user[:password]@]host[:port][,host[:port]…]/name[/database]`, or
///   `rediss+sentinel://…`, for the master of a group that Sentinels watch.
/// - `redis+cluster://[user[:password]@]host[:port][,host[:port]…]`, or `rediss+cluster://…`, for a
///   cluster; some of its servers are enough.
package struct RedisAddress: Sendable, Equatable, CustomStringConvertible {
    /// A host and a TCP port.
    struct Server: Sendable, Hashable, CustomStringConvertible {
        let host: String
        let port: Int

        /// Whether the host is an IP address, so that nothing has to be looked up.
        var isAddress: Bool { self.host.contains(":") || (try? SocketAddress(ipAddress: self.host, port: 0)) != nil }

        var description: String {
            let host = self.host.contains(":") ? "[\(self.host)]" : self.host
            return "\(host):\(self.port)"
        }
    }

    enum Endpoint: Sendable, Equatable {
        case tcp(Server)
        case unixSocket(path: String)
        /// The server that the Sentinels name as the master of the group `name`.
        case sentinels([Server], name: String)
        /// The cluster to which these servers belong.
        case cluster([Server])
    }

    /// The default: this machine, without TLS and login.
    package static let local = RedisAddress(
        .tcp(Server(host: "127.0.0.1", port: 6379)), usesTLS: false, username: nil, password: nil, database: 0)

    private static let queryFault =
        "has a query or a fragment; write the database as /2, and ? or # in a password as %3F or %23"
    private static let sentinelExample = "redis+sentinel://host:26379,host:26379/name"
    private static let clusterExample = "redis+cluster://host:6379,host:6379"

    let endpoint: Endpoint
    let usesTLS: Bool
    let username: String?
    let password: String?
    package let database: Int

    /// Reads a Redis URL.
    ///
    /// - Throws: ``RedisError`` with code `configuration`; its message never holds the password.
    package init(url: String) throws(RedisError) {
        if let end = url.firstRange(of: "+sentinel://") {
            self = try Self.sentinel(scheme: url[..<end.lowerBound].lowercased(), rest: url[end.upperBound...])
            return
        }
        if let end = url.firstRange(of: "+cluster://") {
            self = try Self.cluster(scheme: url[..<end.lowerBound].lowercased(), rest: url[end.upperBound...])
            return
        }
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
            guard components.query == nil, components.fragment == nil else {
                throw RedisError(.configuration, Self.queryFault)
            }
            let bare = host.hasPrefix("[") && host.hasSuffix("]") ? String(host.dropFirst().dropLast()) : host
            self.endpoint = .tcp(Server(host: bare, port: try Self.checked(port: components.port ?? 6379)))
            self.usesTLS = scheme == "rediss"
            self.database = try Self.database(components.path.drop { $0 == "/" })
        case "unix":
            guard !components.path.isEmpty else {
                throw RedisError(.configuration, "has no socket path; use unix:///path/to.sock")
            }
            let items = components.queryItems ?? []
            guard items.count <= 1, items.allSatisfy({ $0.name == "db" }), components.fragment == nil else {
                throw RedisError(
                    .configuration, "has more than the query db=N; write ? or # in the path as %3F or %23")
            }
            self.endpoint = .unixSocket(path: components.path)
            self.usesTLS = false
            self.database = try Self.database(Substring(items.first?.value ?? ""))
        default:
            throw RedisError(
                .configuration,
                "has the unsupported scheme \(scheme)://; "
                    + "use redis://, rediss://, redis+sentinel://, redis+cluster:// or unix://")
        }
    }

    /// Whether another server takes over if the one in use dies.
    package var hasFailover: Bool {
        switch self.endpoint {
        case .sentinels, .cluster: true
        case .tcp, .unixSocket: false
        }
    }

    /// Whether keys are spread over several servers.
    package var isCluster: Bool { if case .cluster = self.endpoint { true } else { false } }

    private init(_ endpoint: Endpoint, usesTLS: Bool, username: String?, password: String?, database: Int) {
        self.endpoint = endpoint
        self.usesTLS = usesTLS
        self.username = username
        self.password = password
        self.database = database
    }

    /// Reads the part after `redis+sentinel://`.
    private static func sentinel(scheme: String, rest: Substring) throws(RedisError) -> RedisAddress {
        guard scheme == "redis" || scheme == "rediss" else {
            throw RedisError(
                .configuration, "has the unsupported scheme \(scheme)+sentinel://; use \(Self.sentinelExample)")
        }
        let parts = try Self.servers(rest, port: 26_379, kind: "Sentinel", example: Self.sentinelExample)
        guard (1...2).contains(parts.path.count), let name = Self.decoded(parts.path[0]), !name.isEmpty else {
            throw RedisError(.configuration, "has no name of a group of Sentinels; use \(Self.sentinelExample)")
        }
        return RedisAddress(
            .sentinels(parts.servers, name: name), usesTLS: scheme == "rediss", username: parts.username,
            password: parts.password, database: try Self.database(parts.path.count > 1 ? parts.path[1] : ""))
    }

    /// Reads the part after `redis+cluster://`.
    private static func cluster(scheme: String, rest: Substring) throws(RedisError) -> RedisAddress {
        guard scheme == "redis" || scheme == "rediss" else {
            throw RedisError(
                .configuration, "has the unsupported scheme \(scheme)+cluster://; use \(Self.clusterExample)")
        }
        let parts = try Self.servers(rest, port: 6_379, kind: "server", example: Self.clusterExample)
        guard parts.path.allSatisfy({ $0.isEmpty || $0 == "0" }), parts.path.count <= 1 else {
            throw RedisError(.configuration, "names a database, but a cluster has only database 0")
        }
        return RedisAddress(
            .cluster(parts.servers), usesTLS: scheme == "rediss", username: parts.username, password: parts.password,
            database: 0)
    }

    /// The parts of a URL that names several hosts, which no URL parser takes.
    private struct Parts {
        var servers: [Server] = []
        var username: String?
        var password: String?
        var path: [Substring] = []
    }

    /// Reads `[user[:password]@]host[:port][,host[:port]…][/path]`.
    ///
    /// - Parameter port: the port of a host without one.
    private static func servers(
        _ text: Substring,
        port: Int,
        kind: String,
        example: String
    ) throws(RedisError) -> Parts {
        var parts = Parts()
        let slash = text.firstIndex(of: "/") ?? text.endIndex
        let authority = text[..<slash]
        if slash < text.endIndex {
            guard !text[slash...].contains(where: { $0 == "?" || $0 == "#" }) else {
                throw RedisError(.configuration, Self.queryFault)
            }
            parts.path = text[slash...].dropFirst().split(separator: "/", omittingEmptySubsequences: false)
        }
        let at = authority.lastIndex(of: "@")
        if let at {
            let login = authority[..<at].split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
                .map { Self.decoded($0) }
            guard !login.contains(nil) else {
                throw RedisError(.configuration, "has a login that is not percent-encoded; write % as %25")
            }
            parts.username = login[0].flatMap { $0.isEmpty ? nil : $0 }
            parts.password = login.count > 1 ? login[1] : nil
        }
        let list = at.map { authority[authority.index(after: $0)...] } ?? authority
        for host in list.split(separator: ",", omittingEmptySubsequences: false) {
            guard let components = URLComponents(string: "redis://\(host)"), let name = components.host, !name.isEmpty,
                components.path.isEmpty, components.query == nil, components.fragment == nil
            else { throw RedisError(.configuration, "has a \(kind) that is not host:port; use \(example)") }
            let bare = name.hasPrefix("[") && name.hasSuffix("]") ? String(name.dropFirst().dropLast()) : name
            parts.servers.append(Server(host: bare, port: try Self.checked(port: components.port ?? port)))
        }
        return parts
    }

    private static func checked(port: Int) throws(RedisError) -> Int {
        guard (1...65_535).contains(port) else {
            throw RedisError(.configuration, "has a port that is not from 1 to 65535")
        }
        return port
    }

    private static func decoded(_ text: Substring) -> String? { PercentCoding.decode(text) }

    private static func database(_ text: Substring) throws(RedisError) -> Int {
        guard !text.isEmpty else { return 0 }
        guard let number = Int(text), number >= 0 else {
            throw RedisError(.configuration, "has a database that is not a number")
        }
        return number
    }

    /// Returns the address of one server with the same login and database.
    func server(_ server: Server) -> RedisAddress {
        RedisAddress(
            .tcp(server), usesTLS: self.usesTLS, username: self.username, password: self.password,
            database: self.database)
    }

    /// Returns the address of one Sentinel, which has no database and a login of its own.
    func sentinel(_ server: Server, password: String?) -> RedisAddress {
        RedisAddress(.tcp(server), usesTLS: self.usesTLS, username: nil, password: password, database: 0)
    }

    /// The address without credentials, safe to log.
    package var description: String {
        let scheme = self.usesTLS ? "rediss" : "redis"
        return switch self.endpoint {
        case .tcp(let server): "\(scheme)://\(server)/\(self.database)"
        case .unixSocket(let path): "unix://\(path)?db=\(self.database)"
        case .sentinels(let servers, let name):
            "\(scheme)+sentinel://\(Self.list(servers))/\(name)/\(self.database)"
        case .cluster(let servers): "\(scheme)+cluster://\(Self.list(servers))"
        }
    }

    private static func list(_ servers: [Server]) -> String { servers.map(\.description).joined(separator: ",") }
}
