// Carillon · Terminal.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import FoundationEssentials
import Glibc

/// Plain output of commands, for people and scripts.
package enum Terminal {
    /// The exit code of a shell for a program that SIGPIPE ended.
    private static let brokenPipe: CInt = 128 + SIGPIPE
    /// EX_IOERR: the output could not be written.
    private static let failedOutput: CInt = 74

    /// Prints a line on standard output, unbuffered.
    package static func line(_ text: String) { Self.text(text + "\n") }

    /// Prints that a service is ready, with its URL; the service continues if nothing reads it.
    package static func ready(_ scheme: String, host: String, port: Int) {
        let host = host.contains(":") ? "[\(host)]" : host
        FileDescriptorOutput(descriptor: STDOUT_FILENO).write(Data("ready \(scheme)://\(host):\(port)\n".utf8))
    }

    /// Prints text on standard output without a newline.
    ///
    /// Exits if the text cannot be written: silently if its reader has exited, such as `head`
    /// (SIGPIPE itself is ignored), otherwise with the error, such as a full disk.
    static func text(_ text: String) {
        guard let fault = FileDescriptorOutput(descriptor: STDOUT_FILENO).writeAll(Data(text.utf8)) else { return }
        if fault == EPIPE { _exit(Self.brokenPipe) }
        Self.error("cannot write to standard output: \(String(cString: strerror(fault)))")
        _exit(Self.failedOutput)
    }

    /// Prints a line on standard error.
    package static func error(_ text: String) {
        FileDescriptorOutput.standardError.write(Data((text + "\n").utf8))
    }

    /// Overwrites the last line of standard error, for a terminal; empty text clears it.
    package static func progress(_ text: String) {
        FileDescriptorOutput.standardError.write(Data(("\r\u{1B}[K" + text).utf8))
    }
}

extension Terminal {
    /// Prints a JSON value on one line.
    package static func value(_ write: (inout JSONWriter) throws -> Void) rethrows {
        var writer = JSONWriter()
        try write(&writer)
        Terminal.line(String(decoding: writer.bytes, as: UTF8.self))
    }

    /// Prints a JSON object on one line.
    package static func value<Value>(_ value: Value, as shape: Shape<Value>) {
        self.value { shape.write(value, to: &$0) }
    }

    /// Prints a JSON object on one line; `write` writes its members.
    package static func object(_ write: (inout JSONWriter) throws -> Void) rethrows {
        try self.value { writer in
            writer.beginObject()
            try write(&writer)
            writer.endObject()
        }
    }
}

/// Text styles of a terminal; plain without a terminal or with `NO_COLOR`.
struct Style: Sendable {
    enum Tint: String, Sendable {
        case bold = "1"
        case faint = "2"
        case red = "31"
        case green = "32"
        case yellow = "33"
    }

    private let isOn: Bool

    /// - Parameter isOn: whether to write escape sequences.
    init(isOn: Bool) {
        self.isOn = isOn
    }

    /// The style for standard output.
    static var output: Style {
        let variables = ProcessInfo.processInfo.environment
        let isRefused = variables["NO_COLOR"].map { !$0.isEmpty } ?? false
        return Style(isOn: isatty(STDOUT_FILENO) == 1 && !isRefused && variables["TERM"] != "dumb")
    }

    /// Returns the text in a tint.
    func callAsFunction(_ text: String, _ tint: Tint) -> String {
        self.isOn ? "\u{1B}[\(tint.rawValue)m\(text)\u{1B}[0m" : text
    }
}

extension Terminal {
    /// The columns of standard output; nil without a terminal, where lines have any length.
    package static var width: Int? { isatty(STDOUT_FILENO) == 1 ? self.columns(STDOUT_FILENO) : nil }

    /// The columns of standard error, for progress lines.
    package static var errorWidth: Int { self.columns(STDERR_FILENO) }

    /// Clears the screen, for output that is redrawn.
    package static func clear() {
        // Home, then clear to the end.
        Terminal.text("\u{1B}[H\u{1B}[J")
    }

    private static func columns(_ descriptor: CInt) -> Int {
        var size = winsize()
        if ioctl(descriptor, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 { return Int(size.ws_col) }
        return ProcessInfo.processInfo.environment["COLUMNS"].flatMap { Int($0) } ?? 80
    }
}
