// Carillon · WebWorkerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// The service worker in a real browser: pushes on the screen, clicks on them, and the badge.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled))
struct WebWorkerTests {
    /// A script that makes a page collect the worker's messages.
    private static let listen = """
        window.told = [];
        navigator.serviceWorker.addEventListener("message", ({ data }) => told.push(data));
        navigator.serviceWorker.startMessages();
        """

    /// Runs `body` with another site's page whose worker imports the gateway's.
    ///
    /// A message to `worker` makes it get a push, or click one. `told` has its messages, and the
    /// badges of the app's icon.
    ///
    /// - Parameter more: the end of the worker's script.
    private static func withWorker(
        _ more: String = "", _ body: (Stack, Gateway, Browser) async throws -> Void
    ) async throws {
        let host = try FreePort.next()
        try await Stack.withBrowser(environment: ["ALLOWED_ORIGINS": "http://127.0.0.1:\(host)"]) {
            stack, gateway, browser in
            let script = """
                importScripts("http://127.0.0.1:\(gateway.port)/sw.js");
                const tell = async (message) => {
                  for (const page of await clients.matchAll({ includeUncontrolled: true })) page.postMessage(message);
                };
                const setAppBadge = (badge) => tell({ badge });
                Object.assign(navigator, { setAppBadge, clearAppBadge: () => setAppBadge(0) });
                const display = registration.showNotification.bind(registration);
                registration.showNotification = async (title, options) => {
                  await display(title, options);
                  await tell({ shown: title });
                };
                addEventListener("message", async ({ data: { push, click } }) => {
                  if (push) dispatchEvent(new PushEvent("push", { data: JSON.stringify(push) }));
                  if (!click) return;
                  const shown = await registration.getNotifications();
                  const notification = shown.find(({ title }) => title === click);
                  dispatchEvent(new NotificationEvent("notificationclick", { notification }));
                });
                \(more)
                """
            let plain = HTTPStub.Answer(body: "<!DOCTYPE html><title>Shop</title>", type: "text/html")
            try await HTTPStub.with(plain, port: host) { stub in
                try await browser.open(stub.url)
                try await browser.grantNotifications()
                stub.answer(HTTPStub.Answer(body: script, type: "text/javascript"))
                try await browser.run(
                    """
                    \(Self.listen)
                    return navigator.serviceWorker.register("/worker.js").then(async () => {
                      window.worker = await navigator.serviceWorker.ready;
                    });
                    """)
                try await body(stack, gateway, browser)
            }
        }
    }

    /// A script for the number of clicks that a worker keeps: the one of `withWorker`, or another.
    private static func kept(by worker: String = "worker") -> String {
        "(await caches.open('carillon clicks ' + \(worker).scope).then((one) => one.keys())).length"
    }

    @Test("the worker hands out a click once, and keeps it again if a page gives it back")
    func returnedClick() async throws {
        try await Self.withWorker { _, _, browser in
            try await browser.run("worker.active.postMessage({ push: { title: 'one', notification_id: '1' } })")
            try await browser.wait(for: "it is shown", "told.some(({ shown }) => shown === 'one')")
            try await browser.wait(
                for: "it is listed", "(await worker.getNotifications()).some(({ title }) => title === 'one')")
            try await browser.run("worker.active.postMessage({ click: 'one' })")
            try await browser.wait(for: "the click is kept", "\(Self.kept()) === 1")
            try await browser.run("worker.active.postMessage({ kind: 'carillon-take-clicks' })")
            let clicks = "told.filter(({ kind }) => kind === 'carillon-clicked')"
            try await browser.wait(for: "the page has it", "\(clicks).length === 1 && \(Self.kept()) === 0")
            try await browser.run("worker.active.postMessage(\(clicks)[0])")
            try await browser.wait(for: "the click is kept again", "\(Self.kept()) === 1")
            try await browser.run("worker.active.postMessage({ kind: 'carillon-take-clicks' })")
            try await browser.wait(for: "the page has it again", "\(clicks).length === 2")
            let ids = try await browser.run("return \(clicks).map(({ id }) => id)")
            #expect(ids.strings == ["1", "1"])
        }
    }

    /// Makes the worker open no window, and keep its timers until a message `pass`.
    private static let heldTimers = """
        const timers = [];
        setTimeout = (work) => {
          timers.push(work);
          tell({ kind: "waits" });
        };
        clients.openWindow = async () => null;
        addEventListener("message", ({ data }) => data.pass && timers.splice(0).forEach((work) => work()));
        """

    /// Opens a tab whose page collects the worker's messages.
    private static func openTab(_ address: String, in browser: Browser) async throws -> String {
        let tab = try await browser.openTab()
        try await browser.open(address)
        try await browser.run(
            "\(Self.listen) return navigator.serviceWorker.ready.then((one) => { window.worker = one; })")
        return tab
    }

    /// Clicks a push, which the page in front orders, and expects that tabs get these messages.
    private static func click(
        _ title: String, url: String?, tells tabs: [(String, String)], in browser: Browser
    ) async throws {
        let link = url.map { ", url: '\($0)'" } ?? ""
        let push = "{ title: '\(title)', notification_id: '\(title)'\(link) }"
        try await browser.run("worker.active.postMessage({ push: \(push) })")
        try await browser.wait(for: "it is shown", "told.some(({ shown }) => shown === '\(title)')")
        try await browser.wait(
            for: "it is listed", "(await worker.getNotifications()).some(({ title }) => title === '\(title)')")
        try await browser.run("worker.active.postMessage({ click: '\(title)' })")
        try await browser.wait(for: "the worker waits", "told.some(({ kind }) => kind === 'waits')")
        try await browser.run("worker.active.postMessage({ pass: true })")
        let kinds = "told.map(({ kind }) => kind).filter((kind) => kind).join(' ')"
        for (tab, expected) in tabs {
            try await browser.show(tab)
            try await browser.wait(for: "\(title): \(expected)", "\(kinds) === '\(expected)'")
            try await browser.run("told.splice(0)")
        }
    }

    @Test("the page in front is told of a click before the others, and a window that opens can take it first")
    func clickInFront() async throws {
        try await Self.withWorker(Self.heldTimers) { _, _, browser in
            let origin = try #require(try await browser.run("return location.origin").string)
            let behind = try await browser.tab()
            let front = try await Self.openTab("\(origin)/front", in: browser)
            let told = [
                ("/front", [(front, "carillon-clicks waits carillon-clicks"), (behind, "waits carillon-clicks")]),
                ("/new", [(front, "waits carillon-clicks"), (behind, "waits carillon-clicks")]),
            ]
            for (path, tabs) in told {
                try await browser.show(front)
                try await Self.click(path, url: path, tells: tabs, in: browser)
            }
        }
    }

    @Test("a click on a push without a link goes to a page that may have an inbox, not to the operator's")
    func clickWithoutLink() async throws {
        try await Self.withWorker(Self.heldTimers) { _, _, browser in
            let origin = try #require(try await browser.run("return location.origin").string)
            let behind = try await browser.tab()
            let front = try await Self.openTab("\(origin)/admin", in: browser)
            let told = [(front, "waits carillon-clicks"), (behind, "carillon-clicks waits carillon-clicks")]
            try await Self.click("one", url: nil, tells: told, in: browser)
        }
    }

    @Test("the badge of the app's icon falls when a push is read elsewhere")
    func badge() async throws {
        try await Self.withWorker { stack, gateway, browser in
            let url = "http://127.0.0.1:\(gateway.port)"
            let ada = CompatibilityClient(gateway, user: "ada")
            try await stack.notify("ada", "Invoice 9")
            try await ada.waitForCount(1)
            let id = try #require(try await ada.get("/v1/notifications").body["notifications"]?.texts("id").first)
            try await browser.run(
                """
                return import("\(url)/web/inbox.js").then(async ({ Inbox }) => {
                  window.inbox = new Inbox("\(url)", async () => "\(Stack.token(user: "ada"))", "en");
                  await inbox.open();
                  worker.active.postMessage({ push: { title: "Invoice 9", notification_id: "\(id)", badge: 1 } });
                });
                """)
            try await browser.wait(for: "it is shown", "told.some(({ shown }) => shown === 'Invoice 9')")
            try await browser.wait(for: "the badge counts it", "told.some(({ badge }) => badge === 1)")
            try await browser.wait(for: "the inbox is online", "inbox.state === 'online'")
            let read = try await ada.send(.post, "/v1/notifications/\(id)/read")
            #expect(read.status == 200)
            try await browser.wait(for: "the badge is gone", "told.at(-1).badge === 0")
        }
    }

    @Test("opening the inbox closes the pushes that were read elsewhere, and corrects the badge")
    func readBeforeOpening() async throws {
        try await Self.withWorker { stack, gateway, browser in
            let url = "http://127.0.0.1:\(gateway.port)"
            let ada = CompatibilityClient(gateway, user: "ada")
            for (title, count) in [("Invoice 9", 1), ("Invoice 10", 2)] {
                try await stack.notify("ada", title)
                try await ada.waitForCount(count)
            }
            let ids = try await ada.get("/v1/notifications").body["notifications"]?.texts("id") ?? []
            for (id, title) in zip(ids, ["Invoice 10", "Invoice 9"]) {
                let push = "{ title: '\(title)', notification_id: '\(id)', badge: 2 }"
                try await browser.run("worker.active.postMessage({ push: \(push) })")
                try await browser.wait(for: "it is shown", "told.some(({ shown }) => shown === '\(title)')")
            }
            let shown = "(await worker.getNotifications()).map(({ title }) => title).sort().join()"
            try await browser.wait(for: "both are listed", "\(shown) === 'Invoice 10,Invoice 9'")
            let read = try await ada.send(.post, "/v1/notifications/\(#require(ids.last))/read")
            #expect(read.status == 200)
            try await browser.run(
                """
                return import("\(url)/web/inbox.js").then(async ({ Inbox }) => {
                  window.inbox = new Inbox("\(url)", async () => "\(Stack.token(user: "ada"))", "en");
                  await inbox.open();
                });
                """)
            try await browser.wait(for: "the read one is closed", "\(shown) === 'Invoice 10'")
            try await browser.wait(for: "the badge counts the other", "told.at(-1).badge === 1")
        }
    }

    @Test("workers of different folders keep and hand out only their own clicks")
    func clicksOfOtherWorkers() async throws {
        try await Self.withWorker { _, _, browser in
            let other = """
                navigator.serviceWorker.register("/worker.js", { scope: "/other/" }).then(async (other) => {
                  window.other = other;
                  while (!other.active) await new Promise((next) => setTimeout(next, 1));
                })
                """
            try await browser.run("return \(other)")
            try await browser.run(
                """
                worker.active.postMessage({ kind: "carillon-clicked", id: "1" });
                other.active.postMessage({ kind: "carillon-clicked", id: "2" });
                """)
            try await browser.wait(for: "both keep a click", "\(Self.kept()) === 1 && \(Self.kept(by: "other")) === 1")
            try await browser.run("worker.active.postMessage({ kind: 'carillon-take-clicks' })")
            let clicks = "told.filter(({ kind }) => kind === 'carillon-clicked').map(({ id }) => id).join()"
            try await browser.wait(for: "the page has the worker's own click", "\(clicks) === '1'")
            try await browser.run("worker.active.postMessage({ kind: 'forget' })")
            try await browser.wait(for: "the badge is gone", "told.some(({ badge }) => badge === 0)")
            try await browser.run("other.active.postMessage({ kind: 'carillon-take-clicks' })")
            try await browser.wait(for: "the other worker has kept its click", "\(clicks) === '1,2'")
        }
    }

    @Test("at a logout the pushes on the screen, the badge and the clicks that no page has reported go")
    func logout() async throws {
        try await Self.withWorker { _, gateway, browser in
            try await browser.run(
                """
                return import("http://127.0.0.1:\(gateway.port)/web/inbox-push.js").then(async ({ Push }) => {
                  PushManager.prototype.subscribe = async () => ({ endpoint: "one" });
                  const call = async () => ({ key: "AQID" });
                  window.push = new Push({ token: async () => "e30.e30.e30", user: async () => "ada", call }, "/worker.js");
                  await push.switchOn();
                  for (const title of ["one", "two"]) {
                    worker.active.postMessage({ push: { title, notification_id: title, badge: 2 } });
                  }
                });
                """)
            let shown = "(await worker.getNotifications()).map(({ title }) => title).sort().join()"
            // A browser that is asked for notifications may drop one that it is about to show.
            try await browser.wait(for: "both are shown", "told.filter(({ shown }) => shown).length === 2")
            try await browser.wait(for: "both are listed", "\(shown) === 'one,two'")
            try await browser.run("worker.active.postMessage({ click: 'two' })")
            try await browser.wait(for: "the click is kept", "\(Self.kept()) === 1")
            try await browser.run("return push.switchOff().then(() => null)")
            try await browser.wait(for: "nothing is shown", "\(shown) === ''")
            try await browser.wait(for: "the badge is gone", "told.some(({ badge }) => badge === 0)")
            try await browser.wait(for: "the click is gone", "!(await caches.has('carillon clicks ' + worker.scope))")
            try await browser.run("worker.active.postMessage({ kind: 'carillon-take-clicks' })")
            try await browser.wait(
                for: "the worker has looked for clicks", "await caches.has('carillon clicks ' + worker.scope)")
            let clicks = try await browser.run("return told.filter(({ kind }) => kind === 'carillon-clicked').length")
            #expect(clicks == .number("0"))
        }
    }
}
