// Carillon · ListenFault.swift
// SPDX-License-Identifier: Apache-2.0

/// Why a service cannot listen where its configuration says.
package struct ListenFault: Error, Sendable, CustomStringConvertible {
    package let description: String

    /// - Parameters:
    ///   - setting: the variable that names the port.
    ///   - reason: the system's own words.
    package init(setting: String, host: String, port: Int, reason: String) {
        self.description = "\(setting): cannot listen on \(host):\(port): \(reason); choose another, or 0 for any"
    }
}
