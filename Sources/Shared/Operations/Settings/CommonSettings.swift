// Carillon · CommonSettings.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Logging
import Storage

/// The settings of both programs.
package struct CommonSettings: Sendable {
    package let redis: RedisSettings
    package let database: String
    package let databaseConnections: Int
    /// The lifetime of this process's lease.
    package let lease: Duration
    package let catalog: String
    /// The zone of users who have set none.
    package let defaultZone: String
    package let logLevel: Logger.Level
    package let logFormat: LogFormat
    /// About how many events are kept for upstream apps; nil if off.
    package let eventsLength: Int?
    /// Whether webhooks may use plain HTTP and private networks.
    package let allowsPrivateWebhooks: Bool
    /// The collector of spans; nil for none.
    package let traces: TraceSettings?

    /// Reads the variables; records faults in `reader`.
    init(_ reader: SettingsReader) {
        self.redis = RedisSettings(reader)
        self.database = DatabaseURL.read(reader)
        self.databaseConnections = reader.integer("DATABASE_CONNECTIONS", default: 4, in: 1...256)
        self.lease = .seconds(reader.integer("LEASE_SECONDS", default: 15, in: 3...60))
        self.defaultZone = Self.defaultZone(reader, ZoneDatabase())
        let catalog = reader.text("CATALOG")
        if catalog == nil { reader.fault("CATALOG", "is missing; give the path of a YAML file or a folder of them") }
        self.catalog = catalog ?? ""
        let log = Self.log(reader)
        self.logLevel = log.level
        self.logFormat = log.format
        self.eventsLength = Self.eventsLength(reader)
        self.traces = TraceSettings(reader)
        self.allowsPrivateWebhooks = reader.isOn("WEBHOOKS_PRIVATE", default: false)
    }

    /// Reads the level and the format of the log.
    package static func log(_ reader: SettingsReader) -> (level: Logger.Level, format: LogFormat) {
        (reader.choice("LOG_LEVEL", default: .info), reader.choice("LOG_FORMAT", default: .text))
    }

    /// Reads the length of the events' stream; nil if it is off.
    package static func eventsLength(_ reader: SettingsReader) -> Int? {
        let isOn = reader.isOn("EVENTS", default: true)
        let length = reader.integer("EVENTS_LENGTH", default: 1_000_000, in: 1_000...100_000_000)
        return isOn ? length : nil
    }

    /// Reads the zone of users who have set none.
    package static func defaultZone(_ reader: SettingsReader, _ zones: ZoneDatabase) -> String {
        reader.value("DEFAULT_ZONE", default: "UTC") { text -> String in
            guard zones.rules(text) != nil else {
                throw FieldFault("is not an IANA time zone in this machine's tzdata, such as Europe/Berlin")
            }
            return text
        }
    }

    /// Reads the gateway's address as clients see it, without a trailing slash; nil if unset.
    static func publicURL(_ reader: SettingsReader) -> String? {
        reader.url("PUBLIC_URL", without: "<>?#", or: "must be a URL such as https://notify.example.com")
    }

    /// The time limit of a Redis command: after a failed one, there is time left to renew the
    /// lease.
    var redisTimeout: Duration { min(.seconds(5), self.lease / 3) }
    /// The time limit of a statement: a batch is stored or has failed before the lease expires.
    var databaseTimeout: Duration { min(.seconds(10), self.lease * 2 / 3) }

    /// Returns the configuration of a connection to Redis.
    package func redisConfiguration(clientName: String) -> RedisConfiguration {
        var configuration = self.redis.configuration(clientName: clientName)
        configuration.commandTimeout = self.redisTimeout
        return configuration
    }

    /// Returns the configuration of the stores' connections to PostgreSQL.
    ///
    /// - Parameter url: another server than that of `DATABASE_URL`.
    package func databaseConfiguration(applicationName: String, url: String? = nil) -> PostgresConfiguration {
        var configuration = PostgresConfiguration(
            connectionString: url ?? self.database, applicationName: applicationName)
        configuration.timeout = self.databaseTimeout
        configuration.sessionSettings = StoreSession.settings
        configuration.connections = self.databaseConnections
        return configuration
    }
}

/// Connection strings of PostgreSQL.
enum DatabaseURL {
    private static let prefixes = ["postgresql://", "postgres://"]

    /// Reads `DATABASE_URL`; empty if it is missing or faulty.
    static func read(_ reader: SettingsReader) -> String {
        if reader.text("DATABASE_URL") == nil {
            reader.fault("DATABASE_URL", "is missing; give postgresql://user@host/database")
        }
        return reader.value("DATABASE_URL", default: "") { try self.checked($0) }
    }

    /// Whether a text begins as a URL.
    static func isURL(_ text: some StringProtocol) -> Bool {
        self.prefixes.contains { text.utf8.starts(with: $0.utf8) }
    }

    /// Refuses a text that libpq cannot read, and a URL whose password would be read as a host, a
    /// port or a path.
    ///
    /// libpq's errors name these, so a part of the password would reach the log.
    ///
    /// - Throws: ``FieldFault``, which never shows the text, because it may contain a password.
    static func checked(_ text: String) throws(FieldFault) -> String {
        try self.checkServers(of: text)
        guard BlockingConnection.isReadable(text) else {
            throw FieldFault("cannot be read by libpq; look for an unknown parameter, or a % that must be %25")
        }
        return text
    }

    private static func checkServers(of text: String) throws(FieldFault) {
        guard let prefix = self.prefixes.first(where: { text.utf8.starts(with: $0.utf8) }) else { return }
        var rest = text.utf8.dropFirst(prefix.utf8.count)
        // Like libpq, ends the login at the first @, unless a / comes first.
        if let end = rest.firstIndex(where: { $0 == UInt8(ascii: "@") || $0 == UInt8(ascii: "/") }),
            rest[end] == UInt8(ascii: "@")
        {
            rest = rest[rest.index(after: end)...]
        }
        let hosts = rest.prefix { $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: "?") }
        let path = rest.dropFirst(hosts.count).prefix { $0 != UInt8(ascii: "?") }
        guard !hosts.contains(UInt8(ascii: "@")), !path.contains(UInt8(ascii: "@")),
            hosts.split(separator: UInt8(ascii: ",")).allSatisfy({ self.hasValidPort($0) })
        else {
            throw FieldFault(
                "must have valid hosts and ports (1 to 65535); percent-encode the password, with @ as %40 and / as %2F")
        }
    }

    /// Whether a host has no port, or a number as its port.
    private static func hasValidPort(_ host: Substring.UTF8View) -> Bool {
        // The colons of an IPv6 address are in brackets.
        let isBracketed = host.first == UInt8(ascii: "[")
        let end = isBracketed ? host.drop { $0 != UInt8(ascii: "]") } : host
        let port = end.drop { $0 != UInt8(ascii: ":") }.dropFirst()
        return port.isEmpty || (1...65_535).contains(Int(Substring(port)) ?? 0)
    }
}

/// How to reach Redis.
package struct RedisSettings: Sendable {
    package let address: RedisAddress
    package let certificateAuthority: String?
    private let sentinelPassword: String?
    /// How many replicas must have a job before its source forgets it.
    let jobReplicas: Int
    /// The number of parts over which a new installation spreads its keys; nil for the default.
    private let parts: Int?

    /// Reads the variables; records faults in `reader`.
    package init(_ reader: SettingsReader) {
        self.address = reader.value("REDIS_URL", default: .local) { text -> RedisAddress in
            do throws(RedisError) {
                return try RedisAddress(url: text)
            } catch {
                throw FieldFault(error.message ?? "cannot be used")
            }
        }
        self.certificateAuthority = reader.text("REDIS_CA")
        self.sentinelPassword = reader.text("REDIS_SENTINEL_PASSWORD")
        self.jobReplicas = reader.integer("JOB_REPLICAS", default: 0, in: 0...5)
        self.parts =
            reader.text("REDIS_PARTS") == nil
            ? nil : reader.integer("REDIS_PARTS", default: 1, in: 1...Keyspace.mostParts)
        if self.address.isCluster, self.parts == 1 { reader.fault("REDIS_PARTS", "must be 2 or more in a cluster") }
    }

    /// Returns the names of the keys, with the number of parts that the first process recorded.
    package func keyspace(_ layout: LayoutStore, logger: Logger) async throws -> Keyspace {
        let layout = try await layout.layout(first: self.firstParts)
        let count = layout.parts
        if let parts, parts != count {
            logger.warning(
                "REDIS_PARTS counts only at the first start of an installation; see dispatcher parts grow",
                metadata: ["parts": "\(count)", "parts.setting": "\(parts)"])
        }
        guard count > 1 || !self.address.isCluster else {
            throw RedisError(
                .configuration,
                "REDIS_URL names a cluster, but this installation has one part; run dispatcher parts grow with "
                    + "the number in the key carillon:parts, or with 16 if there is none")
        }
        return Keyspace(database: self.address.database, parts: count, former: layout.former)
    }

    /// The number of parts that a new installation records.
    var firstParts: Int { self.parts ?? (self.address.isCluster ? 16 : 1) }

    /// Returns the writer for jobs that replicas must confirm; nil if the master is enough.
    ///
    /// - Parameter connection: made only if it is needed.
    package func replicatedWrites(
        on connection: @autoclosure () throws(RedisError) -> RedisClient
    ) throws(RedisError) -> ReplicatedWrites? {
        self.jobReplicas > 0 ? ReplicatedWrites(replicas: self.jobReplicas, on: try connection()) : nil
    }

    /// Returns the configuration of a connection.
    package func configuration(clientName: String) -> RedisConfiguration {
        var configuration = RedisConfiguration(address: self.address, clientName: clientName)
        configuration.certificateAuthorityFile = self.certificateAuthority
        configuration.sentinelPassword = self.sentinelPassword
        return configuration
    }
}

/// The OpenTelemetry collector, with OpenTelemetry's own variable names.
package struct TraceSettings: Sendable {
    /// The base URL, without a trailing slash.
    package let endpoint: String
    /// Request headers, such as a key; never logged.
    package let headers: [(name: String, value: String)]
    /// The service name; nil for the program's own.
    package let service: String?

    /// Reads the variables; records faults in `reader`.
    ///
    /// Nil without a collector.
    init?(_ reader: SettingsReader) {
        let endpoint = reader.url(
            "OTEL_EXPORTER_OTLP_ENDPOINT", without: "<>?#@",
            or: "must be a URL such as http://127.0.0.1:4318, without credentials")
        self.headers = reader.value("OTEL_EXPORTER_OTLP_HEADERS", default: []) { text in
            try text.split(separator: ",").map { pair in
                let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
                let name = parts[0].drop { $0 == " " }
                let isName = name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: ":") }
                // Encoded like a URL (OpenTelemetry, specification of the OTLP exporter).
                guard parts.count == 2, !name.isEmpty, isName, let value = PercentCoding.decode(parts[1]),
                    value.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F })
                else { throw FieldFault("must be name=value, with commas between them and % escaped as %25") }
                return (name: name.lowercased(), value: value)
            }
        }
        self.service = reader.text("OTEL_SERVICE_NAME")
        guard let endpoint else { return nil }
        self.endpoint = endpoint
    }
}
