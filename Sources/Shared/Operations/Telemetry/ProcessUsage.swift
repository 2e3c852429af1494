// Carillon · ProcessUsage.swift
// SPDX-License-Identifier: Apache-2.0

import FoundationEssentials
import Glibc

/// Kernel statistics of this process, with the names of Prometheus' own clients.
package struct ProcessUsage: Sendable {
    private static let limitLine = "Max open files"

    private let startedAt: Double
    private let files: Double?

    /// Created once, at process start.
    package init() {
        self.startedAt = Date.now.timeIntervalSince1970
        self.files = Self.text("/proc/self/limits")?.split(separator: "\n").first { $0.hasPrefix(Self.limitLine) }
            .flatMap { $0.dropFirst(Self.limitLine.count).split(separator: " ").first }.flatMap { Double($0) }
    }

    /// Returns the current values by metric, without those that cannot be read.
    package func values() -> [String: Double] {
        var values = ["process_start_time_seconds": self.startedAt]
        values["process_max_fds"] = self.files
        values["process_open_fds"] = Self.openFiles()
        var usage = timespec()
        if clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &usage) == 0 {
            values["process_cpu_seconds_total"] = Double(usage.tv_sec) + Double(usage.tv_nsec) / 1_000_000_000
        }
        // The second number is the resident size in pages.
        let pages = Self.text("/proc/self/statm")?.split(separator: " ").dropFirst().first.flatMap { Double($0) }
        if let pages { values["process_resident_memory_bytes"] = pages * Double(sysconf(CInt(_SC_PAGESIZE))) }
        return values
    }

    private static func openFiles() -> Double? {
        let folder = "/proc/self/fd"
        var status = stat()
        // Since Linux 6.2 the folder's size is the number of files; earlier kernels need a listing.
        if stat(folder, &status) == 0, status.st_size > 0 { return Double(status.st_size) }
        return (try? FileManager.default.contentsOfDirectory(atPath: folder)).map { Double($0.count) }
    }

    private static func text(_ path: String) -> String? {
        FileManager.default.contents(atPath: path).map { String(decoding: $0, as: UTF8.self) }
    }
}
