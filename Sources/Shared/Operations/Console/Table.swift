// Carillon · Table.swift
// SPDX-License-Identifier: Apache-2.0

/// Rows with aligned columns, for people.
///
/// On a terminal the widest column that may be cut gives way until a row fits its line; elsewhere nothing is cut, and nothing
/// but text and spaces is written.
package struct Table {
    package struct Column: Sendable {
        let title: String
        let isNumber: Bool
        let isCuttable: Bool

        /// Text, which is aligned to the left.
        ///
        /// - Parameter isCuttable: whether it may be shortened where there is not enough room.
        package static func text(_ title: String, isCuttable: Bool = false) -> Column {
            Column(title: title, isNumber: false, isCuttable: isCuttable)
        }

        /// A number, which is aligned to the right.
        package static func number(_ title: String) -> Column {
            Column(title: title, isNumber: true, isCuttable: false)
        }
    }

    private static let gap = 2
    private static let leastWidth = 8

    private let columns: [Column]
    private var rows: [[String]] = []

    package init(_ columns: [Column]) {
        self.columns = columns
    }

    package var isEmpty: Bool { self.rows.isEmpty }

    /// Adds a row with a cell a column; nil is shown as a dash.
    package mutating func add(_ cells: [String?]) {
        self.rows.append(
            self.columns.indices.map { index in
                let cell = index < cells.count ? cells[index] : nil
                return cell.map { DisplayText.line($0) } ?? "-"
            })
    }

    /// The lines, the titles' first.
    ///
    /// - Parameters:
    ///   - room: columns of the terminal; nil for as many as it takes.
    ///   - style: of the titles.
    package func lines(room: Int?, style: Style) -> [String] {
        let titles = self.columns.map(\.title)
        let widths = self.widths(room: room)
        return [style(self.line(titles, widths), .bold)] + self.rows.map { self.line($0, widths) }
    }

    /// Prints it as standard output takes it.
    package func show() {
        for line in self.lines(room: Terminal.width, style: .output) { Terminal.line(line) }
    }

    private func widths(room: Int?) -> [Int] {
        var widths = self.columns.indices.map { index in
            self.rows.reduce(DisplayText.width(self.columns[index].title)) { max($0, DisplayText.width($1[index])) }
        }
        guard let room else { return widths }
        var excess = widths.reduce(0, +) + Self.gap * (widths.count - 1) - room
        while excess > 0 {
            let cuttable = self.columns.indices.filter { self.columns[$0].isCuttable && widths[$0] > Self.leastWidth }
            guard let widest = cuttable.max(by: { widths[$0] < widths[$1] }) else { break }
            widths[widest] -= 1
            excess -= 1
        }
        return widths
    }

    private func line(_ cells: [String], _ widths: [Int]) -> String {
        var line = ""
        for (index, cell) in cells.enumerated() {
            let text = self.columns[index].isCuttable ? DisplayText.cut(cell, to: widths[index]) : cell
            let space = String(repeating: " ", count: max(0, widths[index] - DisplayText.width(text)))
            line += self.columns[index].isNumber ? space + text : text + space
            line += String(repeating: " ", count: Self.gap)
        }
        while line.last == " " { line.removeLast() }
        return line
    }
}

/// What is known about one thing: a name and a value a line, for people.
package struct Card {
    private var rows: [(name: String, value: String)] = []

    package init() {}

    /// Adds a line; nothing where there is no value.
    package mutating func add(_ name: String, _ value: String?) {
        guard let value, !value.isEmpty else { return }
        self.rows.append((name, value))
    }

    /// The lines, aligned; a value of several lines goes on under itself.
    package var lines: [String] {
        let width = self.rows.reduce(0) { max($0, DisplayText.width($1.name)) } + 2
        return self.rows.flatMap { name, value in
            value.split(whereSeparator: \.isNewline).enumerated().map { index, line in
                let head = index == 0 ? name : ""
                return head + String(repeating: " ", count: width - DisplayText.width(head)) + DisplayText.line(line)
            }
        }
    }

    /// Prints it.
    package func show() {
        for line in self.lines { Terminal.line(line) }
    }
}
