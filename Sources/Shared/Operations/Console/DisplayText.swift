// Carillon · DisplayText.swift
// SPDX-License-Identifier: Apache-2.0

/// Text as a terminal shows it.
package enum DisplayText {
    /// Scalars that take two columns: East Asian wide forms and pictures, in blocks.
    private static let wide: [ClosedRange<UInt32>] = [
        0x1100...0x115F, 0x2E80...0x303E, 0x3041...0x33FF, 0x3400...0x4DBF, 0x4E00...0x9FFF, 0xA000...0xA4CF,
        0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE30...0xFE6F, 0xFF00...0xFF60, 0xFFE0...0xFFE6, 0x1F300...0x1F64F,
        0x1F680...0x1F6FF, 0x1F900...0x1F9FF, 0x20000...0x3FFFD,
    ]

    /// How many columns a text takes.
    package static func width(_ text: some StringProtocol) -> Int {
        text.reduce(0) { $0 + self.width($1) }
    }

    private static func width(_ character: Character) -> Int {
        guard let scalar = character.unicodeScalars.first else { return 0 }
        if scalar.isASCII { return 1 }
        if scalar.properties.generalCategory == .nonspacingMark { return 0 }
        return self.wide.contains { $0.contains(scalar.value) } ? 2 : 1
    }

    /// A text on one line, without anything that a terminal would obey: whoever wrote it may not be its reader's friend.
    package static func line(_ text: some StringProtocol) -> String {
        var shown = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            switch scalar.properties.generalCategory {
            case .control, .lineSeparator, .paragraphSeparator: shown.append(" ")
            // What turns the direction of text around, or is not seen at all.
            case .format where scalar != "\u{200D}": continue
            default: shown.append(scalar)
            }
        }
        return String(shown)
    }

    /// The beginning of a text that fits in so many columns, with a mark where something was cut.
    package static func cut(_ text: String, to columns: Int) -> String {
        guard self.width(text) > columns else { return text }
        guard columns > 0 else { return "" }
        var kept = ""
        var used = 0
        for character in text {
            let width = self.width(character)
            guard used + width < columns else { break }
            kept.append(character)
            used += width
        }
        return kept + "…"
    }

    /// A duration of whole seconds for people, such as `3 s`, `2 min 5 s` or `1 d 4 h`.
    package static func duration(_ duration: Duration) -> String {
        let seconds = max(0, duration.components.seconds)
        let parts: (Int64, String, Int64, String)
        switch seconds {
        case ..<1: return "0 s"
        case ..<60: return "\(seconds) s"
        case ..<3_600: parts = (seconds / 60, "min", seconds % 60, "s")
        case ..<86_400: parts = (seconds / 3_600, "h", seconds % 3_600 / 60, "min")
        default: parts = (seconds / 86_400, "d", seconds % 86_400 / 3_600, "h")
        }
        return "\(parts.0) \(parts.1)" + (parts.2 > 0 ? " \(parts.2) \(parts.3)" : "")
    }
}
