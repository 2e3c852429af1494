// Carillon · Browser.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation

/// A headless Chromium, driven over the WebDriver protocol.
///
/// Needs Debian's `chromium` and `chromedriver`. Each browser has its own profile.
package final class Browser: Sendable {
    /// A WebDriver element reference.
    package struct Element: Sendable {
        fileprivate static let key = "element-6066-11e4-a52e-4f735466cecf"
        fileprivate let id: String
    }

    /// WebDriver's code points for keys without a character.
    package enum Key {
        package static let tab = "\u{E004}"
        package static let enter = "\u{E007}"
        package static let escape = "\u{E00C}"
        package static let end = "\u{E010}"
        package static let home = "\u{E011}"
        package static let down = "\u{E015}"
        package static let delete = "\u{E017}"
    }

    /// The longest wait in milliseconds.
    private static let patience = JSONValue.number("\(longestWait.components.seconds)000")

    private let driver: ChildProcess
    private let http: TransferClient
    private let session: String

    private init(driver: ChildProcess, http: TransferClient, session: String) {
        self.driver = driver
        self.http = http
        self.session = session
    }

    /// Runs `body` with a browser, and quits it afterwards.
    ///
    /// - Parameters:
    ///   - directory: the folder for its profile and its output.
    ///   - size: the size of its window, in pixels.
    package static func with<Value>(
        in directory: String,
        http: TransferClient,
        size: (width: Int, height: Int) = (1_280, 900),
        _ body: (Browser) async throws -> Value
    ) async throws -> Value {
        let port = try FreePort.next()
        let name = "browser-\(port)"
        let driver = try await ChildProcess.spawn(
            "chromedriver", ["--port=\(port)"], name: name, environment: ["HOME": directory], directory: directory)
        _ = try await driver.waitForLine("ChromeDriver was started successfully")
        let options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--lang=en", "--window-size=\(size.width),\(size.height)",
            "--user-data-dir=\(directory)/\(name)",
        ]
        let capabilities = JSONValue.dictionary([
            ("browserName", .string("chrome")),
            ("goog:chromeOptions", .dictionary([("args", .array(options.map { .string($0) }))])),
            ("goog:loggingPrefs", .dictionary([("browser", .string("ALL"))])),
            ("timeouts", .dictionary([("script", Self.patience), ("pageLoad", Self.patience)])),
        ])
        let made = try await Self.send(
            .post, "http://127.0.0.1:\(port)/session", http,
            .dictionary([("capabilities", .dictionary([("alwaysMatch", capabilities)]))]))
        guard let id = made["sessionId"]?.string else { throw FixtureError("chromedriver started no session: \(made)") }
        let browser = Browser(driver: driver, http: http, session: "http://127.0.0.1:\(port)/session/\(id)")
        return try await withCleanUp({ await browser.quit() }) { try await body(browser) }
    }

    private func quit() async {
        _ = try? await self.command(.delete, "")
        _ = try? await self.driver.stop(within: .seconds(10))
    }

    // MARK: The protocol

    private static func send(
        _ method: TransferRequest.Method,
        _ url: String,
        _ http: TransferClient,
        _ body: JSONValue?
    ) async throws -> JSONValue {
        let request = TransferRequest(
            method,
            url: url,
            headers: [(name: "content-type", value: "application/json")],
            body: body.map { JSONWriter.bytes(of: $0) } ?? [],
            timeout: longestWait,
            maximumResponseBytes: 16 * 1024 * 1024
        )
        let response = try await http.answer(request)
        let value = try JSONParser.parse(response.body)["value"] ?? .null
        guard response.status == 200 else {
            let message = value["message"]?.string?.prefix(400) ?? ""
            throw FixtureError("\(value["error"]?.string ?? "\(response.status)"): \(message)")
        }
        return value
    }

    @discardableResult
    private func command(
        _ method: TransferRequest.Method,
        _ path: String,
        _ body: JSONValue? = nil
    ) async throws -> JSONValue {
        try await Self.send(method, self.session + path, self.http, body)
    }

    // MARK: Steps of a test

    /// Opens an address in the current tab.
    package func open(_ url: String) async throws {
        try await self.command(.post, "/url", .dictionary([("url", .string(url))]))
    }

    /// Goes back in the tab's history, and waits until the page is there.
    package func back() async throws {
        try await self.command(.post, "/back", .object([]))
    }

    package func reload() async throws {
        try await self.command(.post, "/refresh", .object([]))
    }

    /// Runs the body of a script and returns its result.
    @discardableResult
    package func run(_ script: String, _ arguments: JSONValue...) async throws -> JSONValue {
        try await self.command(
            .post, "/execute/sync", .dictionary([("script", .string(script)), ("args", .array(arguments))]))
    }

    /// Waits until a JavaScript expression is true.
    ///
    /// The expression may use `await`; one that throws counts as false.
    package func wait(
        for what: String,
        _ script: String,
        file: StaticString = #fileID,
        line: UInt = #line
    ) async throws {
        try await eventually(what, file: file, line: line) {
            try await self.run("return (async () => { try { return Boolean(\(script)); } catch { return false; } })()")
                == .bool(true)
        }
    }

    /// Waits until an expression returns an element, which may lie in a shadow tree.
    package func element(
        _ expression: String,
        file: StaticString = #fileID,
        line: UInt = #line
    ) async throws -> Element {
        try await eventualValue("there is \(expression)", file: file, line: line) {
            try await self.run("try { return \(expression) ?? null; } catch { return null; }")[Element.key]?.string.map
            { Element(id: $0) }
        }
    }

    /// Parts of WebDriver errors for an element that moves or was just replaced.
    private static let passing = ["stale element", "click intercepted", "not interactable", "detached shadow root"]

    /// Clicks an element as a user would, and tries again while it moves or is replaced.
    package func click(_ expression: String, file: StaticString = #fileID, line: UInt = #line) async throws {
        try await eventually("\(expression) is clicked", file: file, line: line) {
            let element = try await self.element(expression, file: file, line: line)
            do {
                // WebDriver scrolls too little: the element ends up under a sticky header.
                let place = JSONValue.dictionary([(Element.key, .string(element.id))])
                try await self.run("arguments[0].scrollIntoView({ block: 'center', behavior: 'instant' })", place)
                try await self.command(.post, "/element/\(element.id)/click", .object([]))
                return true
            } catch let error as FixtureError
                where Self.passing.contains(where: { error.description.contains($0) })
            {
                return false
            }
        }
    }

    /// Types text at the end of a field.
    package func type(
        _ text: String,
        into expression: String,
        file: StaticString = #fileID,
        line: UInt = #line
    ) async throws {
        let element = try await self.element(expression, file: file, line: line)
        try await self.command(.post, "/element/\(element.id)/value", .dictionary([("text", .string(text))]))
    }

    /// Presses and releases keys one after the other; they go to the focused element.
    package func press(_ keys: String...) async throws {
        var actions: [JSONValue] = []
        for key in keys {
            for kind in ["keyDown", "keyUp"] {
                actions.append(.dictionary([("type", .string(kind)), ("value", .string(key))]))
            }
        }
        let keyboard = JSONValue.dictionary([
            ("type", .string("key")), ("id", .string("keyboard")), ("actions", .array(actions)),
        ])
        try await self.command(.post, "/actions", .dictionary([("actions", .array([keyboard]))]))
    }

    /// The handle of the current tab.
    package func tab() async throws -> String {
        guard let tab = try await self.command(.get, "/window").string else { throw FixtureError("no tab") }
        return tab
    }

    /// Opens a new tab, switches to it and returns its handle.
    package func openTab() async throws -> String {
        let made = try await self.command(.post, "/window/new", .dictionary([("type", .string("tab"))]))
        guard let tab = made["handle"]?.string else { throw FixtureError("no new tab") }
        try await self.show(tab)
        return tab
    }

    /// Switches to a tab.
    package func show(_ tab: String) async throws {
        try await self.command(.post, "/window", .dictionary([("handle", .string(tab))]))
    }

    /// Grants the current page permission to show notifications.
    package func grantNotifications() async throws {
        let name = JSONValue.dictionary([("name", .string("notifications"))])
        try await self.command(
            .post, "/permissions", .dictionary([("descriptor", name), ("state", .string("granted"))]))
    }

    /// Makes pages see these preferred languages, for example `de-CH,en`.
    package func setLanguages(_ languages: String) async throws {
        let agent = try await self.run("return navigator.userAgent")
        let parameters = JSONValue.dictionary([("userAgent", agent), ("acceptLanguage", .string(languages))])
        try await self.command(
            .post, "/goog/cdp/execute",
            .dictionary([("cmd", .string("Emulation.setUserAgentOverride")), ("params", parameters)]))
    }

    /// Makes pages see forced colours, as in a contrast theme of Windows.
    package func forceColors() async throws {
        let feature = JSONValue.dictionary([("name", .string("forced-colors")), ("value", .string("active"))])
        let parameters = JSONValue.dictionary([("features", .array([feature]))])
        try await self.command(
            .post, "/goog/cdp/execute",
            .dictionary([("cmd", .string("Emulation.setEmulatedMedia")), ("params", parameters)]))
    }

    /// Delivers a push message to the first service worker that this browser registered.
    package func deliverPush(_ json: String, to origin: String) async throws {
        func perform(_ name: String, _ parameters: [(String, JSONValue)]) async throws {
            try await self.command(
                .post, "/goog/cdp/execute",
                .dictionary([("cmd", .string("ServiceWorker.\(name)")), ("params", .dictionary(parameters))]))
        }
        try await perform("enable", [])
        let message = [("origin", origin), ("registrationId", "0"), ("data", json)]
        try await perform("deliverPushMessage", message.map { ($0.0, .string($0.1)) })
    }

    /// Returns console entries since the last call, such as script errors and policy violations.
    package func log() async throws -> [String] {
        try await self.command(.post, "/se/log", .dictionary([("type", .string("browser"))])).array?
            .compactMap { $0["message"]?.string } ?? []
    }
}

extension JSONValue {
    fileprivate static func dictionary(_ members: [(String, JSONValue)]) -> JSONValue {
        .object(members.map { JSONMember($0.0, $0.1) })
    }
}
