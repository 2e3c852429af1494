// Carillon · Browser.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Foundation

/// A real browser without a window, driven over the WebDriver protocol.
///
/// Debian's `chromium` by its `chromedriver`. A browser has a profile of its own and ends with the body that it is given to.
package final class Browser: Sendable {
    /// An element as WebDriver names it.
    package struct Element: Sendable {
        fileprivate static let key = "element-6066-11e4-a52e-4f735466cecf"
        fileprivate let id: String
    }

    /// Keys that have no character of their own, as WebDriver writes them.
    package enum Key {
        package static let tab = "\u{E004}"
        package static let enter = "\u{E007}"
        package static let escape = "\u{E00C}"
        package static let end = "\u{E010}"
        package static let home = "\u{E011}"
        package static let up = "\u{E013}"
        package static let down = "\u{E015}"
        package static let delete = "\u{E017}"
    }

    private let driver: ChildProcess
    private let http: TransferClient
    private let session: String

    private init(driver: ChildProcess, http: TransferClient, session: String) {
        self.driver = driver
        self.http = http
        self.session = session
    }

    /// Whether the browser and its driver are there; says on the error output if not.
    package static let isInstalled: Bool = {
        let folders = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":")
        for program in ["chromium", "chromedriver"]
        where !folders.contains(where: { FileManager.default.isExecutableFile(atPath: "\($0)/\(program)") }) {
            FileHandle.standardError.write(Data("SKIPPED: \(program) is not installed\n".utf8))
            return false
        }
        return true
    }()

    /// Runs `body` with a browser.
    ///
    /// - Parameters:
    ///   - directory: where its profile and its output go.
    ///   - size: of its window.
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
        ])
        let made = try await Self.send(
            .post, "http://127.0.0.1:\(port)/session", http,
            .dictionary([("capabilities", .dictionary([("alwaysMatch", capabilities)]))]))
        guard let id = made["sessionId"]?.string else { throw FixtureError("no browser: \(made)") }
        let browser = Browser(driver: driver, http: http, session: "http://127.0.0.1:\(port)/session/\(id)")
        do {
            let value = try await body(browser)
            await browser.quit()
            return value
        } catch {
            await browser.quit()
            throw error
        }
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
            timeout: .seconds(60),
            maximumResponseBytes: 16 * 1024 * 1024
        )
        switch await http.perform(request) {
        case .answered(let response):
            let value = try JSONParser.parse(response.body)["value"] ?? .null
            guard response.status == 200 else {
                let message = value["message"]?.string?.prefix(400) ?? ""
                throw FixtureError("\(value["error"]?.string ?? "\(response.status)"): \(message)")
            }
            return value
        case .unanswered(let failure): throw FixtureError("the browser's driver: \(failure)")
        }
    }

    @discardableResult
    private func command(
        _ method: TransferRequest.Method,
        _ path: String,
        _ body: JSONValue? = nil
    ) async throws -> JSONValue {
        try await Self.send(method, self.session + path, self.http, body)
    }

    // MARK: What tests do

    /// Goes to an address, in the tab that is in front.
    package func open(_ url: String) async throws {
        try await self.command(.post, "/url", .dictionary([("url", .string(url))]))
    }

    package func reload() async throws {
        try await self.command(.post, "/refresh", .object([]))
    }

    /// The result of a script's body.
    @discardableResult
    package func run(_ script: String, _ arguments: JSONValue...) async throws -> JSONValue {
        try await self.command(
            .post, "/execute/sync", .dictionary([("script", .string(script)), ("args", .array(arguments))]))
    }

    /// Waits until an expression is true, as scripts see it; it may await.
    ///
    /// What is not there yet is not true.
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

    /// Waits until an expression gives an element, which may be in a shadow tree.
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

    /// What is said of an element that moves, or has just been replaced.
    private static let passing = ["stale element", "click intercepted", "not interactable", "detached shadow root"]

    /// Clicks as a hand does: where the element is, if it can be seen there; again on the one that took its place meanwhile.
    package func click(_ expression: String, file: StaticString = #fileID, line: UInt = #line) async throws {
        try await eventually("\(expression) is clicked", file: file, line: line) {
            let element = try await self.element(expression, file: file, line: line)
            do {
                // The driver's own scrolling would leave it under a sticky heading.
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

    /// Types into a field, after what it holds.
    package func type(
        _ text: String,
        into expression: String,
        file: StaticString = #fileID,
        line: UInt = #line
    ) async throws {
        let element = try await self.element(expression, file: file, line: line)
        try await self.command(.post, "/element/\(element.id)/value", .dictionary([("text", .string(text))]))
    }

    /// Presses and lets go of keys, one after the other, wherever the focus is.
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

    /// The tab that is in front.
    package func tab() async throws -> String {
        guard let tab = try await self.command(.get, "/window").string else { throw FixtureError("no tab") }
        return tab
    }

    /// Opens another tab, brings it to the front, and gives its name.
    package func openTab() async throws -> String {
        let made = try await self.command(.post, "/window/new", .dictionary([("type", .string("tab"))]))
        guard let tab = made["handle"]?.string else { throw FixtureError("no new tab") }
        try await self.show(tab)
        return tab
    }

    /// Brings a tab to the front.
    package func show(_ tab: String) async throws {
        try await self.command(.post, "/window", .dictionary([("handle", .string(tab))]))
    }

    /// Lets the page in front show notifications, as a user does who is asked.
    package func grantNotifications() async throws {
        let name = JSONValue.dictionary([("name", .string("notifications"))])
        try await self.command(
            .post, "/permissions", .dictionary([("descriptor", name), ("state", .string("granted"))]))
    }

    /// Makes pages believe that the user prefers these languages, such as `de-CH,en`.
    package func setLanguages(_ languages: String) async throws {
        let agent = try await self.run("return navigator.userAgent")
        let parameters = JSONValue.dictionary([("userAgent", agent), ("acceptLanguage", .string(languages))])
        try await self.command(
            .post, "/goog/cdp/execute",
            .dictionary([("cmd", .string("Emulation.setUserAgentOverride")), ("params", parameters)]))
    }

    /// Hands a push message to the first service worker that this browser registered, as a push service does.
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

    /// What the browser has logged since it was last asked, such as faults of scripts and of the security policy.
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
