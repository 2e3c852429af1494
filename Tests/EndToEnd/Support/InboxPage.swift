// Carillon · InboxPage.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support

/// The inbox page in a browser tab.
struct InboxPage {
    /// The shadow root of the inbox element, as a script expression.
    static let root = "document.querySelector('carillon-inbox').shadowRoot"

    let browser: Browser
    let url: String

    init(_ browser: Browser, _ gateway: Gateway) {
        self.browser = browser
        self.url = "http://127.0.0.1:\(gateway.port)"
    }

    /// Signs a user in by a link with a token, and waits until the inbox is online.
    func open(user: String) async throws {
        try await self.follow(user: user)
        try await self.browser.click("document.getElementById('take')")
        try await self.waitUntilOnline()
        // A busy machine may be slower than a user who reads.
        try await self.browser.run(
            "return import('/web/inbox-panel.js').then(({ Panel }) => { Panel.toastTime = 600_000; })")
    }

    /// Opens a link with a token and waits until the page asks whether to sign in.
    func follow(user: String) async throws {
        try await self.browser.open("\(self.url)/#token=\(Stack.token(user: user))")
        try await self.browser.wait(for: "the page asks", "document.getElementById('take')")
    }

    func waitUntilOnline() async throws {
        try await self.browser.wait(
            for: "the inbox is online",
            "document.querySelector('carillon-inbox')?.shadowRoot.querySelector('.panel')?.dataset.state === 'online'")
    }

    /// The list item with this title, as a script expression.
    static func item(_ title: String) -> String {
        "[...\(Self.root).querySelectorAll('.item')]"
            + ".find((item) => item.querySelector('.title').textContent === '\(title)')"
    }

    /// The element of the inbox that matches a selector, as a script expression.
    static func part(_ selector: String) -> String { "\(Self.root).querySelector(`\(selector)`)" }

    /// Chooses an entry of the menu of the item with this title.
    func choose(_ entry: String, of title: String) async throws {
        try await self.browser.click("\(Self.item(title)).querySelector('[data-part=more]')")
        try await self.browser.click(Self.part("[data-entry=\(entry)]"))
    }

    /// The listed titles, from top to bottom.
    func titles() async throws -> [String] {
        try await self.browser.run(
            "return [...document.querySelector('carillon-inbox')?.shadowRoot?.querySelectorAll('.item .title') ?? []]"
                + ".map((title) => title.textContent)"
        )
        .strings ?? []
    }

    func waitForTitles(_ titles: [String]) async throws {
        try await eventually("\(titles) are listed") { try await self.titles() == titles }
    }

    /// Waits until the list and the header show this unread count; the header shows nothing for 0.
    func waitForUnread(_ count: Int) async throws {
        try await self.browser.wait(
            for: "\(count) are unread",
            "\(Self.root).querySelectorAll('.item.unread').length === \(count) "
                + "&& \(Self.part(".filter .count")).textContent === '\(count == 0 ? "" : "\(count)")'")
    }

    /// Logged script errors and violations of the Content Security Policy.
    func complaints() async throws -> [String] { try await self.browser.complaints() }
}

extension Stack {
    /// Runs `body` with a gateway, a dispatcher and a browser.
    static func withBrowser<Value>(
        environment: [String: String] = [:],
        startsDispatcher: Bool = true,
        _ body: (Stack, Gateway, Browser) async throws -> Value
    ) async throws -> Value {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway(environment: environment)
            if startsDispatcher { _ = try await stack.startDispatcher() }
            return try await Browser.with(in: stack.directory.path, http: stack.http) { browser in
                try await body(stack, gateway, browser)
            }
        }
    }

    /// Runs a script in a page of a gateway, and returns its value; there is no dispatcher.
    static func runScript(_ script: String) async throws -> JSONValue {
        try await Self.withBrowser(startsDispatcher: false) { _, gateway, browser in
            try await browser.open("http://127.0.0.1:\(gateway.port)/")
            return try await browser.run(script)
        }
    }
}
