// Carillon · Readings.swift
// SPDX-License-Identifier: Apache-2.0

import Operations

/// What is read from given variables, beside what is wrong with them.
struct Readings {
    /// The least with which both services start.
    static let least = [
        "DATABASE_URL": "postgresql://app@db/carillon", "CATALOG": "catalog.yaml",
        "AUTH_JWT_SECRET": "0123456789abcdef0123456789abcdef",
    ]

    let gateway: GatewaySettings
    let gatewayFaults: [String]
    let dispatcher: DispatcherSettings
    let dispatcherFaults: [String]

    /// - Parameter changes: variables beside the least; nil leaves one out.
    init(_ changes: [String: String?] = [:]) {
        var variables = Self.least
        for (name, value) in changes { variables[name] = value }
        let forGateway = SettingsReader.variables(variables)
        self.gateway = GatewaySettings(forGateway)
        self.gatewayFaults = Self.faults(forGateway)
        let forDispatcher = SettingsReader.variables(variables)
        self.dispatcher = DispatcherSettings(forDispatcher)
        self.dispatcherFaults = Self.faults(forDispatcher)
    }

    static func faults(_ reader: SettingsReader) -> [String] {
        do throws(SettingsFaults) {
            try reader.finish()
            return []
        } catch {
            return error.faults
        }
    }
}
