// Carillon · CoreOptions.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation

/// On which cores a server and its load run, so that one does not take the other's time.
struct CoreOptions: ParsableArguments {
    @Flag(inversion: .prefixedNo, help: "Bind the server to core 0 and the load to core 1.")
    var pin = true

    /// The server's core; nil if it may run anywhere.
    var server: Int? { self.pin ? 0 : nil }

    /// Binds this process, with the threads that it has and will have.
    func bindLoad() throws {
        guard self.pin else { return }
        _ = try Tool.run("taskset", ["-a", "-c", "-p", "1", "\(ProcessInfo.processInfo.processIdentifier)"])
    }
}

/// How much of a core a process used over a time.
struct CoreShare {
    private let pid: Int
    private let start = ContinuousClock.now
    private let used: Double

    init(of pid: Int) {
        self.pid = pid
        self.used = Self.seconds(of: pid)
    }

    /// That of this process.
    init() {
        self.init(of: Int(ProcessInfo.processInfo.processIdentifier))
    }

    /// Since it was made; 1 is a whole core.
    var value: Double {
        (Self.seconds(of: self.pid) - self.used) / (ContinuousClock.now - self.start).inSeconds
    }

    /// User and system time (proc(5), `stat`), which Linux tells in hundredths.
    static func seconds(of pid: Int) -> Double {
        let stat = (try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8)) ?? ""
        // The second field, in parentheses, may hold anything; the third comes after the last one.
        let fields = stat[(stat.lastIndex(of: ")") ?? stat.startIndex)...].split(separator: " ")
        guard fields.count > 13, let user = Double(fields[12]), let system = Double(fields[13]) else { return .nan }
        return (user + system) / 100
    }
}
