// Carillon · LogOutput.swift
// SPDX-License-Identifier: Apache-2.0

import FoundationEssentials
import Logging

/// How log lines look.
package enum LogFormat: String, Sendable, CaseIterable {
    case text, json
}

/// Sets up the process's logs, on standard error.
package enum LogOutput {
    /// A logger whose every line says who writes it.
    ///
    /// - Parameters:
    ///   - key: what the name is called in the lines.
    ///   - name: tells this process from others of its kind.
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

/// swift-log's lines for people, whose metadata become text when there is a line and not when they are set: every request
/// sets some, and few say anything.
struct TextLogHandler: LogHandler {
    private let output: StreamLogHandler
    var logLevel: Logger.Level
    var metadata: Logger.Metadata = [:]

    init(label: String, logLevel: Logger.Level) {
        var output = StreamLogHandler.standardError(label: label)
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

/// One JSON object a line: `at`, `level`, `logger`, `message`, and the metadata under their own keys.
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
