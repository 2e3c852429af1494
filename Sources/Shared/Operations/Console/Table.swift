// Carillon · Table.swift
// SPDX-License-Identifier: Apache-2.0

/// Rows with aligned columns, for people.
///
/// On a terminal, the widest shrinkable column shrinks until the rows fit. Elsewhere nothing is cut
/// or wrapped, and the output is plain text and spaces.
package struct Table: Sendable {
    /// A column's title, alignment and width.
    package struct Column: Sendable {
        /// How text is shown if space is short.
        fileprivate enum Fit {
            case whole, cut, wrapped
        }

        fileprivate let title: String
        fileprivate let isNumber: Bool
        fileprivate let fit: Fit
        /// The least width, for tables that print rows before all are known.
        fileprivate let leastWidth: Int

        /// Left-aligned text.
        ///
        /// - Parameter isCuttable: whether it may be cut if space is short.
        package static func text(_ title: String, isCuttable: Bool = false, leastWidth: Int = 0) -> Column {
            Column(title: title, isNumber: false, fit: isCuttable ? .cut : .whole, leastWidth: leastWidth)
        }

        /// Left-aligned text that continues on further lines if space is short.
        package static func wrapped(_ title: String) -> Column {
            Column(title: title, isNumber: false, fit: .wrapped, leastWidth: 0)
        }

        /// A right-aligned number.
        package static func number(_ title: String, leastWidth: Int = 0) -> Column {
            Column(title: title, isNumber: true, fit: .whole, leastWidth: leastWidth)
        }
    }

    private static let gap = 2
    private static let leastWidth = 8

    private let columns: [Column]
    private var rows: [[String]] = []

    package init(_ columns: [Column]) {
        self.columns = columns
    }

    /// The line of titles, for a table whose rows are printed one by one.
    package var titles: String { self.line(self.columns.map(\.title), self.widths(room: nil)) }

    /// Returns the line of a row that is printed at once; nil and empty cells become a dash.
    package func row(_ cells: [String?]) -> String { self.line(self.shown(cells), self.widths(room: nil)) }

    /// Adds a row with one cell per column; nil and empty cells become a dash.
    package mutating func add(_ cells: [String?]) { self.rows.append(self.shown(cells)) }

    private func shown(_ cells: [String?]) -> [String] {
        self.columns.indices.map { index in
            let cell = index < cells.count ? cells[index] : nil
            let text = cell.map { DisplayText.line($0) } ?? ""
            return text.isEmpty ? "-" : text
        }
    }

    /// Returns the lines, the titles first.
    ///
    /// - Parameters:
    ///   - room: columns of the terminal; nil for any width.
    ///   - style: the style of the titles.
    func lines(room: Int?, style: Style) -> [String] {
        let titles = self.columns.map(\.title)
        let widths = self.widths(room: room)
        return [style(self.line(titles, widths), .bold)] + self.rows.flatMap { self.lines(of: $0, widths) }
    }

    /// Prints the table for standard output.
    ///
    /// - Parameter none: the line for a table without rows, such as `no schedules`.
    package func show(none: String? = nil) {
        if self.rows.isEmpty, let none { return Terminal.line(none) }
        for line in self.lines(room: Terminal.width, style: .output) { Terminal.line(line) }
    }

    private func widths(room: Int?) -> [Int] {
        var widths = self.columns.indices.map { index -> Int in
            let column = self.columns[index]
            let least = max(column.leastWidth, DisplayText.width(column.title))
            return self.rows.reduce(least) { max($0, DisplayText.width($1[index])) }
        }
        guard let room else { return widths }
        var excess = widths.reduce(0, +) + Self.gap * (widths.count - 1) - room
        while excess > 0 {
            let elastic = self.columns.indices.filter {
                self.columns[$0].fit != .whole && widths[$0] > Self.leastWidth
            }
            guard let widest = elastic.max(by: { widths[$0] < widths[$1] }) else { break }
            widths[widest] -= 1
            excess -= 1
        }
        return widths
    }

    /// Returns the lines of a row: as many as its longest wrapped cell has.
    private func lines(of row: [String], _ widths: [Int]) -> [String] {
        let cells = row.enumerated().map { index, cell in
            self.columns[index].fit == .wrapped ? DisplayText.wrap(cell, to: widths[index]) : [cell]
        }
        let height = cells.map(\.count).max() ?? 1
        return (0..<height).map { number in
            self.line(cells.map { number < $0.count ? $0[number] : "" }, widths)
        }
    }

    private func line(_ cells: [String], _ widths: [Int]) -> String {
        var line = ""
        for (index, cell) in cells.enumerated() {
            let text = self.columns[index].fit == .cut ? DisplayText.cut(cell, to: widths[index]) : cell
            let space = String(repeating: " ", count: max(0, widths[index] - DisplayText.width(text)))
            line += self.columns[index].isNumber ? space + text : text + space
            line += String(repeating: " ", count: Self.gap)
        }
        while line.last == " " { line.removeLast() }
        return line
    }
}

/// The properties of one thing, one name and value per line, for people.
package struct Card {
    private var rows: [(name: String, value: String)] = []

    package init() {}

    /// Adds a line, unless the value is nil or empty.
    package mutating func add(_ name: String, _ value: String?) {
        guard let value, !value.isEmpty else { return }
        self.rows.append((name, value))
    }

    /// The aligned lines; further lines of a value are indented.
    var lines: [String] {
        let width = self.rows.reduce(0) { max($0, DisplayText.width($1.name)) } + 2
        return self.rows.flatMap { name, value in
            value.split(whereSeparator: \.isNewline).enumerated().map { index, line in
                let head = index == 0 ? name : ""
                return head + String(repeating: " ", count: width - DisplayText.width(head)) + DisplayText.line(line)
            }
        }
    }

    /// Prints the lines.
    package func show() {
        for line in self.lines { Terminal.line(line) }
    }
}

/// Text for terminals.
package enum DisplayText {
    /// Scalars that take two columns: East Asian wide forms and pictographs, by block.
    private static let wide: [ClosedRange<UInt32>] = [
        0x1100...0x115F, 0x2E80...0x303E, 0x3041...0x33FF, 0x3400...0x4DBF, 0x4E00...0x9FFF, 0xA000...0xA4CF,
        0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE30...0xFE6F, 0xFF00...0xFF60, 0xFFE0...0xFFE6, 0x1F300...0x1F64F,
        0x1F680...0x1F6FF, 0x1F900...0x1F9FF, 0x20000...0x3FFFD,
    ]

    /// Returns the number of columns that a text takes.
    static func width(_ text: some StringProtocol) -> Int {
        text.reduce(0) { $0 + self.width($1) }
    }

    private static func width(_ character: Character) -> Int {
        guard let scalar = character.unicodeScalars.first else { return 0 }
        if scalar.isASCII { return 1 }
        if scalar.properties.generalCategory == .nonspacingMark { return 0 }
        return self.wide.contains { $0.contains(scalar.value) } ? 2 : 1
    }

    /// Returns a text on one line without control sequences, because it may come from outside.
    package static func line(_ text: some StringProtocol) -> String {
        var shown = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            switch scalar.properties.generalCategory {
            case .control, .lineSeparator, .paragraphSeparator: shown.append(" ")
            // Drop invisible characters and those that change the direction of text.
            case .format where scalar != "\u{200D}": continue
            default: shown.append(scalar)
            }
        }
        return String(shown)
    }

    /// Cuts a text to a number of columns and marks the cut with an ellipsis.
    package static func cut(_ text: String, to columns: Int) -> String {
        guard self.width(text) > columns else { return text }
        return columns > 0 ? self.beginning(of: text, columns - 1) + "…" : ""
    }

    /// Breaks a text into lines of at most `columns` columns, at spaces where there are any.
    ///
    /// - Parameter columns: at least 2, for one wide character.
    static func wrap(_ text: String, to columns: Int) -> [String] {
        guard self.width(text) > columns else { return [text] }
        var lines: [String] = []
        var line = ""
        for word in text.split(separator: " ") {
            if !line.isEmpty, self.width(line) + 1 + self.width(word) > columns {
                lines.append(line)
                line = ""
            }
            line += line.isEmpty ? String(word) : " \(word)"
            while self.width(line) > columns {
                let head = self.beginning(of: line, columns)
                lines.append(head)
                line.removeFirst(head.count)
            }
        }
        return lines + [line]
    }

    /// Returns as much of a text as fits into the columns.
    private static func beginning(of text: String, _ columns: Int) -> String {
        var used = 0
        return String(
            text.prefix { character in
                used += self.width(character)
                return used <= columns
            })
    }

    /// Formats whole seconds, such as `3 s`, `2 min 5 s` or `1 d 4 h`.
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
