// Carillon · OperatorPage.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import HTTP

/// The operator's page in a browser tab.
struct OperatorPage {
    let browser: Browser
    let url: String

    init(_ browser: Browser, _ gateway: Gateway) {
        self.browser = browser
        self.url = "http://127.0.0.1:\(gateway.port)/admin"
    }

    // MARK: Views

    /// Signs an operator in by a link with a token, and opens a view.
    func open(_ view: String = "") async throws {
        try await self.follow(token: Stack.token(user: "root", scope: .admin))
        try await self.browser.wait(for: "the page is there", Self.part("#content > .view"))
        if !view.isEmpty { try await self.show(view) }
    }

    /// Opens a link with a token and accepts the sign-in.
    func follow(token: String) async throws {
        try await self.browser.open("\(self.url)#token=\(token)")
        try await self.browser.wait(for: "the page asks", "document.getElementById('take')")
        #expect(try await self.browser.run("return document.querySelector('main .view') === null") == .bool(true))
        try await self.click("#take")
    }

    /// Opens another view by its link, such as `jobs/order-17`.
    func show(_ view: String) async throws {
        try await self.browser.run(
            """
            document.querySelector('#content > .view').dataset.old = 'yes';
            location.hash = arguments[0];
            """, .string(view))
        try await self.browser.wait(for: "\(view) is open", Self.part("#content > .view:not([data-old])"))
    }

    /// Waits until the address has this view and query, such as `#jobs?status=failed`.
    func waitForLink(_ link: String, file: StaticString = #fileID, line: UInt = #line) async throws {
        try await self.browser.wait(
            for: "the link is \(link)", "location.hash === '\(link)'", file: file, line: line)
    }

    // MARK: Parts

    /// The first element that matches a selector, as a script expression.
    static func part(_ selector: String) -> String { "document.querySelector(`\(selector)`)" }

    /// All elements that match a selector, as a script expression of an array.
    static func parts(_ selector: String) -> String { "[...document.querySelectorAll(`\(selector)`)]" }

    /// Waits until the text of an element contains all these words.
    func wait(
        _ selector: String,
        shows words: String...,
        file: StaticString = #fileID,
        line: UInt = #line
    ) async throws {
        for word in words {
            try await self.browser.wait(
                for: "\(selector) shows “\(word)”", "\(Self.part(selector)).textContent.includes(`\(word)`)",
                file: file, line: line)
        }
    }

    /// Waits until this number of elements match a selector.
    func wait(
        _ selector: String,
        counts count: Int,
        file: StaticString = #fileID,
        line: UInt = #line
    ) async throws {
        try await self.browser.wait(
            for: "there are \(count) \(selector)", "\(Self.parts(selector)).length === \(count)",
            file: file, line: line)
    }

    /// The cells of a table with this name, by row.
    func rows(_ table: String) async throws -> [[String]] {
        let found = try await self.browser.run(
            """
            return [...document.querySelectorAll(`[aria-label="${arguments[0]}"] tbody tr`)]
              .map((row) => [...row.cells].map((cell) => cell.textContent.trim()));
            """, .string(table))
        return (found.array ?? []).map { $0.strings ?? [] }
    }

    // MARK: Actions

    func click(_ selector: String, file: StaticString = #fileID, line: UInt = #line) async throws {
        try await self.browser.click(Self.part(selector), file: file, line: line)
    }

    /// Replaces the text of a field.
    func enter(
        _ text: String,
        into selector: String,
        file: StaticString = #fileID,
        line: UInt = #line
    ) async throws {
        let field = Self.part(selector)
        _ = try await self.browser.element(field, file: file, line: line)
        try await self.browser.run("\(field).value = ''")
        try await self.browser.type(text, into: field, file: file, line: line)
    }

    /// Chooses an option of a list.
    func choose(
        _ value: String,
        of selector: String,
        file: StaticString = #fileID,
        line: UInt = #line
    ) async throws {
        _ = try await self.browser.element(
            Self.part("\(selector) option[value=\"\(value)\"]"), file: file, line: line)
        try await self.browser.run(
            """
            const list = \(Self.part(selector));
            list.value = arguments[0];
            for (const name of ['input', 'change']) list.dispatchEvent(new Event(name, { bubbles: true }));
            """, .string(value))
    }

    /// Waits until a dialog asks with all these words.
    func waitForQuestion(_ words: String..., file: StaticString = #fileID, line: UInt = #line) async throws {
        for word in words { try await self.wait("dialog", shows: word, file: file, line: line) }
    }

    /// Answers the dialog with yes, and waits until it is closed.
    func agree() async throws {
        try await self.click("dialog button[value=yes]")
        try await self.wait("dialog", counts: 0)
    }

    /// Closes the dialog without an answer.
    func decline() async throws {
        try await self.click("dialog button[value=no]")
        try await self.wait("dialog", counts: 0)
    }

    /// Logged script errors and violations of the Content Security Policy.
    func complaints() async throws -> [String] { try await self.browser.complaints() }
}

extension Browser {
    /// Script errors and violations of the Content Security Policy that were logged since the last
    /// call.
    func complaints() async throws -> [String] {
        try await self.log().filter { line in
            ["Content Security Policy", "Trusted", "Uncaught", "TypeError"].contains { line.contains($0) }
        }
    }
}

extension Stack {
    /// Runs `body` with a gateway, a dispatcher and the operator's page.
    ///
    /// - Parameters:
    ///   - view: the view that is open.
    ///   - notifications: those that are stored before the page opens; they need the dispatcher.
    ///   - startsDispatcher: whether there is a dispatcher.
    ///   - catalog: the text of the catalog; nil for that of the examples.
    ///   - size: the size of the browser's window, in pixels.
    static func withOperator<Value>(
        at view: String = "",
        notifications: [(user: String, title: String)] = [],
        startsDispatcher: Bool = true,
        catalog: String? = nil,
        size: (width: Int, height: Int) = (1_280, 900),
        _ body: (Stack, Gateway, OperatorPage) async throws -> Value
    ) async throws -> Value {
        try await Stack.with { stack in
            let settings = try catalog.map { try stack.catalog($0) } ?? [:]
            let gateway = try await stack.startGateway(environment: settings)
            if startsDispatcher { _ = try await stack.startDispatcher(environment: settings) }
            for (user, title) in notifications { try await stack.notify(user, title) }
            try await eventually("the notifications are stored") {
                let count = try await stack.query("SELECT count(*) FROM carillon.notifications")
                return try count.first?.int8(0) == Int64(notifications.count)
            }
            return try await Browser.with(in: stack.directory.path, http: stack.http, size: size) { browser in
                let page = OperatorPage(browser, gateway)
                try await page.open(view)
                return try await body(stack, gateway, page)
            }
        }
    }

    /// Stores a dead letter.
    ///
    /// - Parameters:
    ///   - number: tells its entry from that of other letters.
    ///   - fields: the fields of the job, as JSON pairs.
    func insertLetter(_ number: Int, reason: String, fields: String) async throws {
        try await self.query(
            "INSERT INTO carillon.dead_letters (stream, entry, reason, fields, at) VALUES ($1, $2, $3, $4, now())",
            .text("carillon:jobs"), .text("1795000000000-\(number)"), .text(reason), .jsonb(Array(fields.utf8)))
    }

    /// Stores a broadcast that has failed for each dead letter.
    func failBroadcasts() async throws {
        try await self.query(
            """
            INSERT INTO carillon.broadcasts (id, org_id, job_id, job_entry, stream, fields, lane, urgency, state, reason,
                created_at)
            SELECT gen_random_uuid(), '', entry, stream || '/' || entry, stream, fields, 'normal', 1, 'failed', reason, at
            FROM carillon.dead_letters
            """)
    }
}
