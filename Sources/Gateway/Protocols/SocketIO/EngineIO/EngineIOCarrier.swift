// Carillon · EngineIOCarrier.swift
// SPDX-License-Identifier: Apache-2.0

/// An HTTP exchange or a WebSocket, by a number that its owner gives it and never gives again.
package struct EngineIOCarrier: Sendable, Hashable {
    package let number: UInt64

    package init(_ number: UInt64) {
        self.number = number
    }
}
