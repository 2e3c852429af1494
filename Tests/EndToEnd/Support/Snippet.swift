// Carillon · Snippet.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// A fenced block of a page, with the instructions in the comment right above it.
///
/// `<!-- run -->`, `<!-- run: prints "text"; notifies ada "title"; app -->` or `<!-- not run: why
/// -->`; readers of the page do not see it.
struct Snippet: Sendable {
    enum Fate: Equatable, Sendable {
        case run
        case notRun(reason: String)
        case unsaid
    }

    /// A notification that the block must cause.
    struct Notice: Equatable, Sendable {
        let user: String
        let title: String
    }

    let language: String
    let text: String
    /// The line of the opening fence, from 1.
    let line: Int
    let fate: Fate
    /// Lines that the program must print.
    let prints: [String]
    let notices: [Notice]
    /// The block's own application database, if it has one, with tables from a file if one is
    /// named.
    let app: App?
    /// Files of the checkout that go before and after the block's text.
    let frame: Frame

    struct Frame: Equatable, Sendable {
        var before: String?
        var after: String?
    }

    enum App: Equatable, Sendable {
        case empty
        case schema(String)
    }

    private init(language: String, text: String, line: Int, comment: String?) throws {
        self.language = Self.names[language] ?? language
        self.text = text
        self.line = line
        var prints: [String] = []
        var notices: [Notice] = []
        var app: App?
        var frame = Frame()
        guard let comment, let match = comment.wholeMatch(of: #/<!-- (run|not run)(?:: (.*))? -->/#) else {
            (self.fate, self.prints, self.notices, self.app, self.frame) = (.unsaid, [], [], nil, frame)
            return
        }
        let words = String(match.output.2 ?? "")
        if match.output.1 == "not run" {
            self.fate = words.isEmpty ? .unsaid : .notRun(reason: words)
        } else {
            self.fate = .run
            for word in words.split(separator: "; ") {
                if let print = word.wholeMatch(of: #/prints "(.+)"/#) {
                    prints.append(Self.unquoted(print.output.1))
                } else if let notice = word.wholeMatch(of: #/notifies (\S+) "(.+)"/#) {
                    notices.append(Notice(user: String(notice.output.1), title: Self.unquoted(notice.output.2)))
                } else if let file = word.wholeMatch(of: #/app(?: (\S+))?/#) {
                    app = file.output.1.map { .schema(String($0)) } ?? .empty
                } else if let file = word.wholeMatch(of: #/before (\S+)/#) {
                    frame.before = String(file.output.1)
                } else if let file = word.wholeMatch(of: #/after (\S+)/#) {
                    frame.after = String(file.output.1)
                } else {
                    throw SnippetFault(line: line, text: "unknown instruction: \(word)")
                }
            }
        }
        (self.prints, self.notices, self.app, self.frame) = (prints, notices, app, frame)
    }

    private static func unquoted(_ text: Substring) -> String { String(text).replacing(#"\""#, with: "\"") }

    private static let names = ["bash": "sh", "js": "javascript", "mjs": "javascript", "py": "python"]

    /// Languages whose blocks must say whether they run.
    static let languages: Set<String> = ["sh", "sql", "python", "javascript", "go", "swift"]

    /// The blocks of a page, in order.
    static func all(of page: String) throws -> [Snippet] {
        let lines = page.split(separator: "\n", omittingEmptySubsequences: false)
        var snippets: [Snippet] = []
        var index = 0
        while index < lines.count {
            defer { index += 1 }
            guard lines[index].hasPrefix("```") else { continue }
            let first = index
            let language = String(lines[first].dropFirst(3))
            index += 1
            while index < lines.count, lines[index] != "```" { index += 1 }
            guard index < lines.count else { throw SnippetFault(line: first + 1, text: "has no closing fence") }
            snippets.append(
                try Snippet(
                    language: language,
                    text: lines[(first + 1)..<index].joined(separator: "\n") + "\n",
                    line: first + 1,
                    comment: first > 0 ? String(lines[first - 1]) : nil
                ))
        }
        return snippets
    }
}

/// A fault in a block or in its comment.
struct SnippetFault: Error {
    let line: Int
    let text: String
}

enum Pages {
    /// The paths of all pages, relative to the checkout.
    static func all() throws -> [String] {
        let folders = try FileManager.default.subpathsOfDirectory(atPath: Stack.checkout.appending(path: "docs").path)
        return ["README.md"] + folders.filter { $0.hasSuffix(".md") }.map { "docs/\($0)" }.sorted()
    }

    static func snippets(_ path: String) throws -> [Snippet] {
        try Snippet.all(of: try String(contentsOf: Stack.checkout.appending(path: path), encoding: .utf8))
    }

    /// The blocks of one language on a page, joined into one program in reading order.
    static func program(_ parts: [Snippet]) throws -> String {
        func text(_ path: String) throws -> String {
            try String(contentsOf: Stack.checkout.appending(path: path), encoding: .utf8)
        }
        let before = try parts.compactMap(\.frame.before).map { try text($0) }
        let after = try parts.compactMap(\.frame.after).map { try text($0) }
        return (before + parts.map(\.text) + after).joined(separator: "\n")
    }

    /// Pages with blocks that run.
    static func running() -> [String] {
        let pages = (try? Self.all()) ?? []
        return pages.filter { path in (try? Self.snippets(path))?.contains { $0.fate == .run } == true }
    }
}
