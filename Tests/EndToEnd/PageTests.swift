// Carillon · PageTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support
import Testing

/// The commands and programs on the pages of the documentation.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct PageTests {
    @Test("every block in a runnable language says whether it runs, or why not")
    func said() throws {
        for page in try Pages.all() where page != "README.md" {
            for snippet in try Pages.snippets(page) where Snippet.languages.contains(snippet.language) {
                let place = "\(page):\(snippet.line)"
                #expect(snippet.fate != .unsaid, "\(place): a comment above says `run`, or `not run: why`")
            }
        }
        #expect(Pages.running().count >= 5)
    }

    @Test("a page's blocks run, print what they should and notify the right users", arguments: Pages.running())
    func page(path: String) async throws {
        let snippets = try Pages.snippets(path).filter { $0.fate == .run }
        try await Stack.with { stack in
            try await Self.withApp(snippets.compactMap(\.app).first) { app in
                let bench = try await Workbench.open(stack)
                let environment = app.map { ["APP_DATABASE": $0, "NEW_DATABASE_URL": $0] } ?? [:]
                var done: Set<String> = []
                for language in snippets.map(\.language) where done.insert(language).inserted {
                    let parts = snippets.filter { $0.language == language }
                    let text = try Pages.program(parts)
                    guard
                        let process = try await bench.start(
                            language, text, name: "page-\(language)", environment: environment)
                    else { continue }
                    let exit = try await process.waitForExit(within: .seconds(180))
                    #expect(exit == .code(0), "\(path), \(language): \(process.output())\(process.errors())")
                    let output = process.output() + process.errors()
                    for print in parts.flatMap(\.prints) {
                        #expect(output.contains(print), "\(path) prints \(print): \(output)")
                    }
                    for notice in parts.flatMap(\.notices) { try await bench.waitForNotice(notice) }
                }
            }
        }
    }

    /// Runs `body` with an application database if the page needs one.
    private static func withApp(_ app: Snippet.App?, _ body: (String?) async throws -> Void) async throws {
        guard let app else { return try await body(nil) }
        try await TestDatabase.with(isMigrated: false) { database in
            if case .schema(let file) = app {
                let directory = try TemporaryDirectory("app")
                let process = try await ChildProcess.spawn(
                    "psql",
                    ["-Xq", "-v", "ON_ERROR_STOP=1", "-f", Stack.checkout.appending(path: file).path, database.url],
                    directory: directory.path
                )
                let exit = try await process.waitForExit()
                #expect(exit == .code(0), "\(file): \(process.errors())")
            }
            try await body(database.url)
        }
    }
}
