// Carillon · CommonSettings.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Logging

/// What both services need.
package struct CommonSettings: Sendable {
    /// Nil for the default address.
    private let redis: RedisAddress?
    package let redisCertificateAuthority: String?
    package let database: String
    package let databaseConnections: Int
    package let catalog: String
    /// The zone of users who have set none.
    package let defaultZone: String
    package let logLevel: Logger.Level
    package let logFormat: LogFormat
    /// About how many events are kept for upstream apps; nil if none are written.
    package let eventsLength: Int?
    /// Whether webhooks may lead into private networks, and be plain HTTP.
    package let allowsPrivateWebhooks: Bool
    /// Where spans go; nil if there is no collector.
    package let traces: TraceSettings?

    /// Reads it; faults stay with the reader.
    package init(_ reader: SettingsReader) {
        self.redis = reader.value("REDIS_URL", default: nil) { text -> RedisAddress? in
            do throws(RedisError) {
                return try RedisAddress(url: text)
            } catch {
                throw Complaint(error.message ?? "cannot be used")
            }
        }
        self.redisCertificateAuthority = reader.text("REDIS_CA")
        let database = reader.text("DATABASE_URL")
        if database == nil { reader.fault("DATABASE_URL", "is missing; give postgresql://user@host/database") }
        self.database = database ?? ""
        self.databaseConnections = reader.integer("DATABASE_CONNECTIONS", default: 4, in: 1...256)
        self.defaultZone = reader.text("DEFAULT_ZONE") ?? "UTC"
        let catalog = reader.text("CATALOG")
        if catalog == nil { reader.fault("CATALOG", "is missing; give the path of a YAML file or a folder of them") }
        self.catalog = catalog ?? ""
        self.logLevel = reader.choice("LOG_LEVEL", default: .info)
        self.logFormat = reader.choice("LOG_FORMAT", default: .text)
        let events = reader.choice("EVENTS", default: GatewaySettings.Switch.on)
        let length = reader.integer("EVENTS_LENGTH", default: 1_000_000, in: 1_000...100_000_000)
        self.eventsLength = events == .on ? length : nil
        self.traces = TraceSettings(reader)
        self.allowsPrivateWebhooks = reader.choice("WEBHOOKS_PRIVATE", default: GatewaySettings.Switch.off) == .on
    }

    /// The address; the default's where none was given.
    ///
    /// - Throws: never in practice, as the default is well formed.
    package func redisAddress() throws(RedisError) -> RedisAddress {
        if let redis { return redis }
        return try RedisAddress(url: "redis://127.0.0.1:6379/0")
    }
}

/// What is wrong with one variable, in words that follow its name.
struct Complaint: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }
}
