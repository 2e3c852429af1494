// Carillon · CounterSet.swift
// SPDX-License-Identifier: Apache-2.0

import Metrics
import Synchronization

/// Counters that differ in one label whose values come from outside: bounded, the rest counts as `other`.
final class CounterSet: Sendable {
    private static let capacity = 100

    private let counters = Mutex<[String: Counter]>([:])

    func counter(_ label: String, _ dimensions: [(String, String)], _ name: String, _ value: String) -> Counter {
        let value = value.utf8.allSatisfy { Self.isWord($0) } && value.utf8.count <= 64 ? value : "other"
        return self.counters.withLock { counters in
            let key = "\(label) \(value)"
            if let counter = counters[key] { return counter }
            let shown = counters.count < Self.capacity ? value : "other"
            let otherKey = "\(label) \(shown)"
            if let counter = counters[otherKey] { return counter }
            let counter = Counter(label: label, dimensions: dimensions + [(name, shown)])
            counters[otherKey] = counter
            return counter
        }
    }

    private static func isWord(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
            || byte == UInt8(ascii: "_") || byte == UInt8(ascii: ":") || byte == UInt8(ascii: ".")
    }
}
