// Carillon · Report.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// One figure as a line of JSON.
struct Report {
    private var members: [String: Any] = [:]

    init(_ name: String) {
        self.members["benchmark"] = name
    }

    mutating func add(_ key: String, _ value: Double) {
        self.members[key] = (value * 1_000).rounded() / 1_000
    }

    mutating func add(_ key: String, _ value: Int) {
        self.members[key] = value
    }

    mutating func add(_ key: String, _ value: String) {
        self.members[key] = value
    }

    func print() throws {
        let bytes = try JSONSerialization.data(withJSONObject: self.members, options: [.sortedKeys])
        FileHandle.standardOutput.write(bytes + Data("\n".utf8))
    }
}

/// The seconds that `work` takes.
func seconds(_ work: () async throws -> Void) async rethrows -> Double {
    let start = ContinuousClock.now
    try await work()
    return (ContinuousClock.now - start).inSeconds
}

extension Duration {
    var inSeconds: Double { Double(self.components.seconds) + Double(self.components.attoseconds) / 1e18 }
}

/// The sample below which `share` of all lie.
func percentile(_ share: Double, _ sorted: [Double]) -> Double {
    sorted.isEmpty ? .nan : sorted[min(sorted.count - 1, Int(Double(sorted.count) * share))]
}

/// The middle of samples.
func median(_ samples: [Double]) -> Double {
    percentile(0.5, samples.sorted())
}
