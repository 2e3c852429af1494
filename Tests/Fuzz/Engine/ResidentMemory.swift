// Carillon · ResidentMemory.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// What the process holds in memory, as the kernel counts it.
enum ResidentMemory {
    static func kilobytes() -> Int {
        guard let status = try? String(contentsOfFile: "/proc/self/status", encoding: .utf8) else { return 0 }
        let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
        return line?.split(whereSeparator: { $0 == " " || $0 == "\t" }).dropFirst().first.flatMap { Int($0) } ?? 0
    }
}
