// Carillon · DocumentationTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation
import Support
import Testing

/// The commands and programs on the pages of the documentation.
@Suite(.timeLimit(.minutes(10)))
struct PageTests {
    @Test("every block in a runnable language says whether it runs, or why not")
    func said() throws {
        for page in try Pages.all() where page != "README.md" {
            for snippet in try Pages.snippets(page) where Snippet.languages.contains(snippet.language) {
                let place = "\(page):\(snippet.line)"
                #expect(snippet.fate != .unmarked, "\(place): a comment above says `run`, or `not run: why`")
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
                    let exit = try await process.waitForExit(within: .seconds(300))
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

/// The tour of the README, step by step.
@Suite(.timeLimit(.minutes(10)))
struct TourTests {
    @Test(
        "the README's tour shows what it says",
        .enabled(if: Browser.isInstalled && PythonClient.has("socketio")))
    func tour() async throws {
        let snippets = try Pages.snippets("README.md")
        // Without the command that starts the stack; split where the tour closes the page.
        let commands = snippets.filter { $0.language == "sh" && !$0.text.contains("deploy/") }.map(\.text)
        let offline = try #require(commands.firstIndex { $0.contains("/v1/devices") })
        try await Stack.with { stack in
            let bench = try await Workbench.open(stack)
            try await Browser.with(in: stack.directory.path, http: stack.http) { browser in
                let page = InboxPage(browser, bench.gateway)
                try await page.open(user: "ada")
                try await browser.wait(for: "it says that all is quiet", InboxPage.part(".state.empty"))
                try await Self.run(bench, commands[..<offline], name: "online")
                try await page.waitForTitles(["Payment received"])
                try await page.waitForUnread(1)
                try await eventually("it is confirmed") {
                    try await stack.statuses(user: "ada")["Payment received"] == "delivered"
                }
            }
            try await Self.run(bench, [commands[0]] + commands[offline...], name: "offline")
            try await eventually("the phone has it") { stack.pushed()["phone-1"] == ["While you were away"] }
            try await eventually("every fault is named") {
                let reasons = try await stack.deadReasons().values
                return reasons.contains { $0.contains("type: is not in the catalog") && $0.contains("colour") }
            }
            let settings = try await bench.gateway.call(.get, "/v1/settings", token: Stack.token(user: "ada"))
            #expect(settings.body["quiet_hours"] == .null, "the next pages send pushes to the same user")

            let other = try await Self.start(bench, snippets, "python", containing: "socketio.Client")
            _ = try await other?.waitForLine("unread: ")
            try await other?.stop()
            let before = "const gatewayURL = process.env.GATEWAY_URL, token = process.env.USER_TOKEN;\n"
            let page = try await Self.start(bench, snippets, "javascript", containing: "new WebSocket", before: before)
            try await eventually("the page is connected") { page == nil || page?.output().contains("welcome") == true }
            try await page?.stop()
        }
    }

    private static func start(
        _ bench: Workbench,
        _ snippets: [Snippet],
        _ language: String,
        containing text: String,
        before: String = ""
    ) async throws -> ChildProcess? {
        let snippet = try #require(snippets.first { $0.language == language && $0.text.contains(text) })
        return try await bench.start(language, before + snippet.text, name: "tour-\(language)-\(snippet.line)")
    }

    private static func run(_ bench: Workbench, _ commands: some Sequence<String>, name: String) async throws {
        let process = try #require(try await bench.start("sh", commands.joined(separator: "\n"), name: name))
        let exit = try await process.waitForExit()
        #expect(exit == .code(0), "\(process.output())\(process.errors())")
    }
}

/// The programs of `examples/`, run as a developer runs them.
@Suite(.timeLimit(.minutes(10)))
struct ExampleTests {
    @Test(
        "each example succeeds, and again on a second run",
        .enabled(if: Commands.have("python3", "psql")),
        arguments: ["accounting", "allowance", "household", "news", "scheduler"])
    func example(name: String) async throws {
        try await Stack.with { stack in
            // Shortens a digest's window of two minutes.
            let catalog = try stack.catalog(replacing: "window: 2m", with: "window: 4s")
            let settings = catalog.merging(stack.mailSettings()) { one, _ in one }
            let gateway = try await stack.startBoth(environment: settings)
            var variables = try await stack.developerVariables(gateway)
            variables.merge(catalog) { $1 }
            try Stack.write(variables, into: stack.directory.path)
            // The shell has a proxy, and variables of an earlier start, which the file replaces.
            let shell = [
                "CARILLON_DATA": stack.directory.path, "GATEWAY_URL": "http://127.0.0.1:1",
                "http_proxy": "http://127.0.0.1:1", "no_proxy": "", "NO_PROXY": "",
            ]
            for run in 1...2 {
                let process = try await ChildProcess.spawn(
                    Stack.checkout.appending(path: "examples/\(name)/run").path,
                    name: "\(name)-\(run)",
                    environment: shell,
                    directory: stack.directory.path
                )
                let exit = try await process.waitForExit()
                #expect(exit == .code(0), "\(process.output())\(process.errors())")
                #expect(process.output().hasSuffix("done\n"))
            }
            #expect(try await stack.deadReasons().isEmpty)
        }
    }

    @Test(
        "without a stack that has the examples' types, an example says what to start and fails",
        .enabled(if: Commands.have("python3")))
    func noStack() async throws {
        let directory = try TemporaryDirectory("no-stack")
        let missing = try await Self.failure(directory)
        #expect(missing.contains("start the stack first: CATALOG=examples/catalog.d deploy/up"), "\(missing)")
        var variables = ["CATALOG": Stack.checkout.appending(path: "deploy/catalog.d").path]
        for name in ["AUTH_JWT_SECRET", "CARILLON_BIN", "DATABASE_URL", "GATEWAY_URL", "REDIS_URL", "SANDBOX_URL"] {
            variables[name] = "unused"
        }
        try Stack.write(variables, into: directory.path)
        let other = try await Self.failure(directory)
        #expect(other.contains("start the stack as CATALOG=examples/catalog.d deploy/up"), "\(other)")
    }

    /// Runs an example that must fail, and returns its errors.
    private static func failure(_ directory: TemporaryDirectory) async throws -> String {
        let process = try await ChildProcess.spawn(
            Stack.checkout.appending(path: "examples/news/run").path,
            name: "news",
            environment: ["CARILLON_DATA": directory.path, "GATEWAY_URL": ""],
            directory: directory.path
        )
        let exit = try await process.waitForExit()
        #expect(exit == .code(1))
        return process.errors()
    }
}
