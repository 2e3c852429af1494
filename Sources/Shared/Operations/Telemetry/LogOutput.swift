// Carillon · LogOutput.swift
// SPDX-License-Identifier: Apache-2.0

import FoundationEssentials
import Glibc
import Logging

/// The format of log lines.
package enum LogFormat: String, Sendable, CaseIterable {
    case text, json
}

/// Sets up logging to standard error.
package enum LogOutput {
    /// Returns a logger whose lines name this process.
    ///
    /// - Parameters:
    ///   - key: the metadata key.
    ///   - name: identifies this process among others of its kind.
    package static func logger(label: String, key: String, name: String) -> Logger {
        var logger = Logger(label: label)
        logger[metadataKey: key] = "\(name)"
        return logger
    }

    package static func bootstrap(format: LogFormat, level: Logger.Level) {
        LoggingSystem.bootstrap { label in
            switch format {
            case .text:
                return TextLogHandler(label: label, logLevel: level)
            case .json:
                return JSONLogHandler(label: label, logLevel: level)
            }
        }
    }
}

/// swift-log's text format without control characters; metadata is formatted only for a line that
/// is written.
///
/// Every request sets metadata, and few requests log.
struct TextLogHandler: LogHandler {
    private let output: StreamLogHandler
    var logLevel: Logger.Level
    var metadata: Logger.Metadata = [:]

    init(label: String, logLevel: Logger.Level, lines: PlainLines = .standardError) {
        var output = StreamLogHandler(label: label, stream: lines)
        output.logLevel = logLevel
        self.output = output
        self.logLevel = logLevel
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { self.metadata[key] }
        set { self.metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        var output = self.output
        output.metadata = self.metadata
        output.log(event: event)
    }
}

/// Writes lines with spaces in place of control characters.
///
/// Messages and metadata quote jobs and callers, which must not forge a line or control a terminal.
struct PlainLines: TextOutputStream, Sendable {
    static let standardError = PlainLines { FileDescriptorOutput.standardError.write(Data($0.utf8)) }

    private let output: @Sendable (String) -> Void

    /// - Parameter output: writes a line, which ends with a line feed.
    init(_ output: @escaping @Sendable (String) -> Void) { self.output = output }

    /// Writes a line, which ends with a line feed.
    func write(_ line: String) {
        var plain = String.UnicodeScalarView()
        for scalar in line.unicodeScalars.dropLast() {
            switch scalar.properties.generalCategory {
            case .control, .lineSeparator, .paragraphSeparator: plain.append(" ")
            default: plain.append(scalar)
            }
        }
        plain.append("\n")
        self.output(String(plain))
    }
}

/// One JSON object per line: `at`, `level`, `logger`, `message`, and the metadata by key.
struct JSONLogHandler: LogHandler {
    private static let time = Date.ISO8601FormatStyle(includingFractionalSeconds: true)

    let label: String
    var logLevel: Logger.Level
    var metadata: Logger.Metadata = [:]

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { self.metadata[key] }
        set { self.metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        var line: [String: String] = [
            "at": Date.now.formatted(Self.time),
            "level": event.level.rawValue,
            "logger": self.label,
            "message": event.message.description,
        ]
        for (key, value) in self.metadata.merging(event.metadata ?? [:], uniquingKeysWith: { $1 }) {
            line[key] = value.description
        }
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        guard var bytes = try? encoder.encode(line) else { return }
        bytes.append(UInt8(ascii: "\n"))
        FileDescriptorOutput.standardError.write(bytes)
    }
}

/// Writes whole lines to a file descriptor.
struct FileDescriptorOutput: Sendable {
    static let standardError = FileDescriptorOutput(descriptor: STDERR_FILENO)

    let descriptor: CInt

    /// One call per line, so that threads do not mix.
    ///
    /// Failed writes are dropped.
    func write(_ bytes: Data) {
        _ = bytes.withUnsafeBytes { Glibc.write(self.descriptor, $0.baseAddress, $0.count) }
    }

    /// Writes all bytes, in several calls if it must.
    ///
    /// - Returns: the error number if they could not be written; otherwise nil.
    func writeAll(_ bytes: Data) -> CInt? {
        var rest = bytes
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(self.descriptor, $0.baseAddress, $0.count) }
            let fault = errno
            if count >= 0 {
                rest = rest.dropFirst(count)
            } else if fault == EAGAIN {
                // Another program has set the pipe or terminal to non-blocking.
                var room = pollfd(fd: self.descriptor, events: Int16(POLLOUT), revents: 0)
                _ = poll(&room, 1, -1)
            } else if fault != EINTR {
                return fault
            }
        }
        return nil
    }
}
