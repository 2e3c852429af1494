// Carillon · Measurements.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Foundation
import Support

/// A result as a line of JSON.
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

/// Returns the seconds that `work` takes.
func seconds(_ work: () async throws -> Void) async rethrows -> Double {
    let start = ContinuousClock.now
    try await work()
    return (ContinuousClock.now - start).inSeconds
}

extension Duration {
    var inSeconds: Double { Double(self.components.seconds) + Double(self.components.attoseconds) / 1e18 }
}

/// Returns the sample below which `share` of all samples lie.
func percentile(_ share: Double, _ sorted: [Double]) -> Double {
    sorted.isEmpty ? .nan : sorted[min(sorted.count - 1, Int(Double(sorted.count) * share))]
}

/// Returns the median of the samples.
func median(_ samples: [Double]) -> Double {
    percentile(0.5, samples.sorted())
}

/// The cores for a server and its load, so that they do not compete for time.
struct CoreOptions: ParsableArguments {
    @Flag(inversion: .prefixedNo, help: "Bind the server to core 0 and the load to core 1.")
    var pin = true

    /// The server's core; nil for any.
    var server: Int? { self.pin ? 0 : nil }

    /// Binds all current and future threads of this process to the load's core.
    func bindLoad() throws {
        guard self.pin else { return }
        _ = try Tool.run("taskset", ["-a", "-c", "-p", "1", "\(ProcessInfo.processInfo.processIdentifier)"])
    }
}

/// The share of a core that a process uses over time.
struct CoreShare {
    private let pid: pid_t
    private let start = ContinuousClock.now
    private let used: Double

    init(of pid: pid_t) {
        self.pid = pid
        self.used = Self.seconds(of: pid)
    }

    /// Measures this process.
    init() {
        self.init(of: ProcessInfo.processInfo.processIdentifier)
    }

    /// The share since initialisation; 1 is a whole core.
    var value: Double {
        (Self.seconds(of: self.pid) - self.used) / (ContinuousClock.now - self.start).inSeconds
    }

    /// User and system time in seconds (proc(5), `stat`), with a resolution of 10 ms.
    static func seconds(of pid: pid_t) -> Double {
        let fields = ProcessFields(of: pid)
        guard let user = fields[14], let system = fields[15] else { return .nan }
        return Double(user + system) / 100
    }

    /// User and system time of a server and its children in seconds; ended children count too.
    static func seconds(ofServer pid: pid_t) throws -> Double {
        let fields = ProcessFields(of: pid)
        guard let ended = fields[16], let endedSystem = fields[17] else {
            throw ValidationError("process \(pid) does not run on this machine")
        }
        var seconds = Self.seconds(of: pid) + Double(ended + endedSystem) / 100
        for child in ProcessTable.children(of: pid) {
            let used = Self.seconds(of: child)
            // A child that has just ended has no time any more.
            if !used.isNaN { seconds += used }
        }
        return seconds
    }
}

/// The fields of a process (proc(5), `stat`).
struct ProcessFields {
    private let fields: [Substring]

    init(of pid: pid_t) {
        let stat = (try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8)) ?? ""
        // The second field, in parentheses, may contain anything; count from the last parenthesis.
        self.fields = stat[(stat.lastIndex(of: ")") ?? stat.startIndex)...].split(separator: " ")
    }

    /// A number by its place in the manual, from 3; nil if the process has ended.
    subscript(_ number: Int) -> Int? {
        self.fields.indices.contains(number - 2) ? Int(self.fields[number - 2]) : nil
    }

    /// The process id of the parent; nil if the process has ended.
    var parent: pid_t? { self[4].map { pid_t($0) } }
}

/// The page `/metrics` of a service.
struct MetricsPage {
    private let client: TransferClient
    private let url: String

    /// - Parameter program: a started service; its first line contains the address.
    init(of program: ChildProcess) async throws {
        var configuration = TransferConfiguration()
        configuration.allowPlainHTTP = true
        self.client = try TransferClient(configuration: configuration, logger: Environment.logger)
        self.url = String(try await program.waitForLine("ready ").dropFirst("ready ".count)) + "/metrics"
    }

    /// Returns the values of a metric by one of its labels.
    func values(_ name: String, by label: String) async throws -> [String: Double] {
        var values: [String: Double] = [:]
        for line in try await self.text().split(separator: "\n") where line.hasPrefix(name + "{") {
            let mark = "\(label)=\""
            guard let start = line.range(of: mark)?.upperBound, let value = line.split(separator: " ").last,
                let number = Double(value)
            else { continue }
            values[String(line[start...].prefix { $0 != "\"" }), default: 0] += number
        }
        return values
    }

    private func text() async throws -> String {
        let request = TransferRequest(.get, url: self.url, maximumResponseBytes: 8 << 20)
        let response = try await self.client.answer(request)
        guard response.status == 200 else { throw ValidationError("\(self.url) answered \(response.status)") }
        return String(decoding: response.body, as: UTF8.self)
    }
}
