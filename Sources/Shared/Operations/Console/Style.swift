// Carillon · Style.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Glibc

/// How text looks on a terminal: not at all different where there is none, or where `NO_COLOR` is set.
package struct Style: Sendable {
    package enum Tint: String, Sendable {
        case bold = "1"
        case faint = "2"
        case red = "31"
        case green = "32"
        case yellow = "33"
    }

    private let isOn: Bool

    /// - Parameter isOn: whether escape sequences are written.
    package init(isOn: Bool) {
        self.isOn = isOn
    }

    /// As standard output takes it.
    package static var output: Style {
        let variables = ProcessInfo.processInfo.environment
        let isRefused = variables["NO_COLOR"].map { !$0.isEmpty } ?? false
        return Style(isOn: isatty(STDOUT_FILENO) == 1 && !isRefused && variables["TERM"] != "dumb")
    }

    /// A text in a tint.
    package func callAsFunction(_ text: String, _ tint: Tint) -> String {
        self.isOn ? "\u{1B}[\(tint.rawValue)m\(text)\u{1B}[0m" : text
    }
}

extension Terminal {
    /// How many columns standard output has; nil if it is no terminal, where lines are as long as they are.
    package static var width: Int? { isatty(STDOUT_FILENO) == 1 ? self.columns(STDOUT_FILENO) : nil }

    /// How many columns there are for progress, which standard error shows.
    package static var errorWidth: Int { self.columns(STDERR_FILENO) }

    /// Empties the screen of standard output, for what is shown again and again.
    package static func clear() {
        // Home, then all below it.
        Terminal.text("\u{1B}[H\u{1B}[J")
    }

    private static func columns(_ descriptor: CInt) -> Int {
        var size = winsize()
        if ioctl(descriptor, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 { return Int(size.ws_col) }
        return ProcessInfo.processInfo.environment["COLUMNS"].flatMap { Int($0) } ?? 80
    }
}
