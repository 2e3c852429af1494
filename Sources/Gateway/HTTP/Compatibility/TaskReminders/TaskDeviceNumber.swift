// Carillon · TaskDeviceNumber.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A device's id as a whole number, for clients that keep it in 32 bits.
///
/// It is taken from the random part of the device's UUID. Only a user's own devices are looked up by it, a hundred at most,
/// so two of them share a number once in some 400,000 users; such a number is then refused.
enum TaskDeviceNumber {
    static func number(of id: NotificationID) -> Int {
        Int(id.low & 0x7FFF_FFFF)
    }

    /// The device that a path names by its number, its UUID or its token.
    ///
    /// Nil if none is meant, or more than one could be.
    static func find(_ key: String, in devices: [Device]) -> Device? {
        let found = devices.filter { device in
            device.token == key || NotificationID(key) == device.id || Int(key) == Self.number(of: device.id)
        }
        return found.count == 1 ? found.first : nil
    }
}
