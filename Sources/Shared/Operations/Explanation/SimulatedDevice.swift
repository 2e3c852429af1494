// Carillon · SimulatedDevice.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A device that a push would go to.
package struct SimulatedDevice: Sendable {
    package let device: Device
    /// Whether a dispatcher has a way to its provider for its app; true if none that runs says which it has.
    package let isReachable: Bool

    /// What people know it by.
    package var label: String {
        let name = self.device.name.map { " (\($0))" } ?? ""
        return "\(self.device.provider.rawValue) \(self.device.id)\(name)"
    }
}
