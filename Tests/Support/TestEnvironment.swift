// Carillon · TestEnvironment.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Glibc
import Logging
import Synchronization

/// The programs that were built with the tests.
package enum TestProducts {
    /// `CARILLON_TEST_PRODUCTS`, or the folder of the test bundle.
    package static var directory: String {
        if let path = ProcessInfo.processInfo.environment["CARILLON_TEST_PRODUCTS"], !path.isEmpty { return path }
        return Bundle.main.executableURL?.deletingLastPathComponent().path ?? FileManager.default.currentDirectoryPath
    }

    /// Returns the path of a built program such as `gateway`.
    ///
    /// - Throws: ``FixtureError`` when it has not been built.
    package static func path(_ product: String) throws -> String {
        let path = Self.directory + "/" + product
        guard FileManager.default.isExecutableFile(atPath: path) else {
            throw FixtureError("\(path) is missing; build it with: swift build --product \(product)")
        }
        return path
    }
}

/// A temporary directory that is removed with this object.
package final class TemporaryDirectory: Sendable {
    package let path: String

    /// Creates the directory; other users may traverse it but not list it.
    package init(_ label: String = "test") throws {
        let url = FileManager.default.temporaryDirectory
            .appendingPathComponent("carillon-\(label)-\(UUID().uuidString.prefix(8).lowercased())", isDirectory: true)
        try FileManager.default.createDirectory(
            at: url, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o711])
        self.path = url.path
    }

    deinit {
        self.remove()
    }

    /// Removes the directory now; repeating it does nothing.
    package func remove() {
        try? FileManager.default.removeItem(atPath: self.path)
    }

    /// Returns the path of the file `name` in this directory.
    package func file(_ name: String) -> String {
        self.path + "/" + name
    }
}

/// The log for code that runs inside the test process.
package enum TestLog {
    /// Silent unless `CARILLON_TEST_LOG` names a level.
    package static let logger: Logger = {
        let level = ProcessInfo.processInfo.environment["CARILLON_TEST_LOG"].flatMap { Logger.Level(rawValue: $0) }
        guard let level else { return Logger(label: "test") { _ in SwiftLogNoOpLogHandler() } }
        var logger = Logger(label: "test") { StreamLogHandler.standardError(label: $0) }
        logger.logLevel = level
        return logger
    }()
}

/// Records log lines in the form that a test compares.
package final class LogRecorder: Sendable {
    private struct Handler: LogHandler {
        let recorder: LogRecorder
        var logLevel: Logger.Level
        var metadata: Logger.Metadata = [:]

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { self.metadata[key] }
            set { self.metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let line = self.recorder.line(event)
            self.recorder.lines.withLock { $0.append(line) }
        }
    }

    private let level: Logger.Level
    private let line: @Sendable (LogEvent) -> String
    private let lines = Mutex<[String]>([])

    /// - Parameters:
    ///   - level: the least level that is recorded.
    ///   - line: makes the text of an event.
    package init(from level: Logger.Level = .trace, _ line: @escaping @Sendable (LogEvent) -> String) {
        self.level = level
        self.line = line
    }

    /// The lines so far.
    package var all: [String] { self.lines.withLock { $0 } }

    /// A logger whose lines are recorded.
    package var logger: Logger { Logger(label: "test") { _ in Handler(recorder: self, logLevel: self.level) } }
}

/// Finds unused TCP ports on the loopback address.
package enum FreePort {
    // Below Linux's ephemeral range, so that no outgoing connection takes the port before its use.
    private static let range = 20_000...32_000
    private static let given = Mutex(Set<Int>())

    /// Returns a free port that this process has not returned before.
    ///
    /// - Throws: ``FixtureError`` when a hundred attempts found none.
    package static func next() throws -> Int {
        for _ in 0..<100 {
            let port = Int.random(in: Self.range)
            guard Self.given.withLock({ $0.insert(port).inserted }), Self.isFree(port) else { continue }
            return port
        }
        throw FixtureError("no free port")
    }

    private static func isFree(_ port: Int) -> Bool {
        let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr.s_addr = in_addr_t(INADDR_LOOPBACK).bigEndian
        // `bind` reads the address only during the call.
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { general in
                bind(descriptor, general, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
            }
        }
    }
}
