// Carillon · ConnectionIdentifier.swift
// SPDX-License-Identifier: Apache-2.0

/// Names for connections and nodes: 96 random bits in lower-case base 36.
package enum ConnectionIdentifier {
    package static func make() -> String {
        String(UInt64.random(in: .min ... .max), radix: 36) + String(UInt32.random(in: .min ... .max), radix: 36)
    }
}
