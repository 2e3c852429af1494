// Carillon · ProcessTable.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// What Linux tells of processes in `/proc`.
package enum ProcessTable {
    /// Whether a process has been stopped by a signal.
    static func isStopped(_ identifier: pid_t) -> Bool {
        Self.status(identifier)?.state == "T"
    }

    /// The processes that `parent` has started and that still run.
    static func children(of parent: pid_t) -> [pid_t] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        return names.compactMap { pid_t($0) }.filter { identifier in
            // Those that have ended stay in the table as Z until their parent collects them.
            Self.status(identifier).map { $0.parent == parent && $0.state != "Z" } ?? false
        }
    }

    /// The bytes of memory that a process has now, and the most that it has ever had.
    package static func memory(of identifier: Int32) -> (resident: Int, peak: Int) {
        let data = FileManager.default.contents(atPath: "/proc/\(identifier)/status") ?? Data()
        let lines = String(decoding: data, as: UTF8.self).split(separator: "\n")
        func value(_ name: String) -> Int {
            let line = lines.first { $0.hasPrefix("\(name):") }
            return (line?.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0) * 1_024
        }
        return (value("VmRSS"), value("VmHWM"))
    }

    private static func status(_ identifier: pid_t) -> (state: Substring, parent: pid_t)? {
        guard let data = FileManager.default.contents(atPath: "/proc/\(identifier)/stat") else { return nil }
        // The name in brackets may hold anything; the state and the parent's id follow the last bracket.
        let text = String(decoding: data, as: UTF8.self)
        guard let fields = text.split(separator: ")").last?.split(separator: " "), fields.count > 1 else { return nil }
        return pid_t(fields[1]).map { (fields[0], $0) }
    }
}
