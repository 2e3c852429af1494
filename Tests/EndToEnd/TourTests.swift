// Carillon · TourTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support
import Testing

/// The tour of the README, step by step.
@Suite(.serialized, .timeLimit(.minutes(10)))
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
                try await eventually("it is proven") {
                    try await stack.statuses(user: "ada")["Payment received"] == "delivered"
                }
            }
            try await Self.run(bench, [commands[0]] + commands[offline...], name: "offline")
            try await eventually("the phone has it") { stack.pushed()["phone-1"] == ["While you were away"] }
            try await eventually("every fault is named") {
                let reasons = try await stack.deadReasons().values
                return reasons.contains { $0.contains("type: is not in the catalog") && $0.contains("colour") }
            }

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
