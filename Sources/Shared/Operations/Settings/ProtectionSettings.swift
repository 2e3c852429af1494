// Carillon · ProtectionSettings.swift
// SPDX-License-Identifier: Apache-2.0

/// Who may use the gateway's listener, and how much of it.
package struct ProtectionSettings: Sendable {
    /// Origins of pages that may open sockets and read answers, in lower case; nil for all.
    package let allowedOrigins: [String]?
    /// Addresses and networks of proxies, as they were given.
    package let trustedProxies: [String]
    /// Sockets of one user on a node.
    package let userConnections: Int
    /// Sockets of one address on a node; nil for no bound.
    package let addressConnections: Int?
    /// Calls of one user a second, on all nodes; nil for no bound.
    package let userCalls: Int?
    /// Messages of one user a second over all of its sockets, on all nodes; nil for no bound.
    package let userMessages: Int?

    /// Reads it; faults stay with the reader.
    package init(_ reader: SettingsReader) {
        self.allowedOrigins = reader.value("ALLOWED_ORIGINS", default: []) { text -> [String]? in
            text == "*" ? nil : try Self.list(text).map { try WebOrigin($0).text }
        }
        self.trustedProxies = Self.list(reader.text("TRUSTED_PROXIES") ?? "")
        self.userConnections = reader.integer("USER_CONNECTIONS", default: 32, in: 1...100_000)
        let addressConnections = reader.integer("ADDRESS_CONNECTIONS", default: 0, in: 0...1_000_000)
        self.addressConnections = addressConnections > 0 ? addressConnections : nil
        let calls = reader.integer("USER_CALLS_PER_SECOND", default: 50, in: 0...100_000)
        self.userCalls = calls > 0 ? calls : nil
        let messages = reader.integer("USER_MESSAGES_PER_SECOND", default: 50, in: 0...100_000)
        self.userMessages = messages > 0 ? messages : nil
    }

    /// The allowed origins in words, `*` for all.
    package var originNames: Set<String> { self.allowedOrigins.map { Set($0) } ?? ["*"] }

    private static func list(_ text: String) -> [String] {
        text.split(separator: ",").map { String($0.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed()) }
    }
}
