// Carillon · Watchdog.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Synchronization

/// Ends the process when an input takes too long; runs on its own thread.
final class Watchdog: Sendable {
    private let limit: Duration
    private let target: String
    private let file: String
    private let began = Mutex<ContinuousClock.Instant?>(nil)

    init(limit: Duration, target: String, file: String) {
        self.limit = limit
        self.target = target
        self.file = file
    }

    func start() {
        Thread.detachNewThread {
            while true {
                Thread.sleep(forTimeInterval: 0.5)
                guard let began = self.began.withLock({ $0 }), ContinuousClock.now - began > self.limit else {
                    continue
                }
                print("\(self.target) FAULT: an input took longer than \(self.limit); see \(self.file)")
                exit(1)
            }
        }
    }

    func begin() { self.began.withLock { $0 = .now } }
    func end() { self.began.withLock { $0 = nil } }
}

/// A file with the current input.
struct InputRecord {
    let path: String
    private let handle: FileHandle

    /// - Throws: when the temporary folder is not writable.
    init(target: String) throws {
        let folder = ProcessInfo.processInfo.environment["TMPDIR"] ?? "/tmp"
        self.path = "\(folder)/carillon-fuzz-\(target).input"
        guard FileManager.default.createFile(atPath: self.path, contents: nil),
            let handle = FileHandle(forWritingAtPath: self.path)
        else { throw CocoaError(.fileWriteUnknown) }
        self.handle = handle
    }

    func write(_ input: [UInt8]) {
        // A failed write matters only after a crash, so ignore it.
        try? self.handle.truncate(atOffset: 0)
        try? self.handle.seek(toOffset: 0)
        try? self.handle.write(contentsOf: Data(input))
    }

    func remove() {
        try? FileManager.default.removeItem(atPath: self.path)
    }
}

/// The resident memory of this process.
enum ResidentMemory {
    static func kilobytes() -> Int {
        guard let status = try? String(contentsOfFile: "/proc/self/status", encoding: .utf8) else { return 0 }
        let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
        return line?.split(whereSeparator: { $0 == " " || $0 == "\t" }).dropFirst().first.flatMap { Int($0) } ?? 0
    }
}
