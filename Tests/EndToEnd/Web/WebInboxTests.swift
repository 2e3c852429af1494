// Carillon · WebInboxTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Support
import Testing

@testable import Clients
@testable import HTTP

/// The inbox page in a real browser.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled))
struct WebInboxTests {
    @Test("a notification appears live, its link, buttons and text are safe, and the page keeps its CSP")
    func live() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await page.open(user: "ada")
            try await browser.wait(for: "it says that all is quiet", InboxPage.part(".state.empty"))
            #expect(try await browser.run("return location.hash") == .string(""))
            try await stack.notify("ada", "<img src=x onerror=alert(1)>", [("url", "app://alert(1)")])
            try await stack.notify(
                "ada", "Water the plants",
                [("data", #"{"actions":[{"id":"done","title":"Done"}]}"#), ("url", "https://example.com/task")])
            try await page.waitForTitles(["Water the plants", "<img src=x onerror=alert(1)>"])
            try await page.waitForUnread(2)
            #expect(try await browser.run("return document.title") == .string("(2) Notifications"))
            let links = try await browser.run(
                "return [...\(InboxPage.root).querySelectorAll('a.title')].map((a) => a.href)")
            #expect(links.strings == ["https://example.com/task"])
            try await browser.run(
                """
                addEventListener('carillon-action', (event) => {
                  window.acted = event.detail.action.id;
                  event.preventDefault();
                })
                """)
            try await browser.click("\(InboxPage.item("Water the plants")).querySelector('.action')")
            try await browser.wait(for: "the page hears of the button", "window.acted === 'done'")
            try await eventually("upstream apps hear of it, once") {
                try await stack.events().filter { $0["event"] == "acted" }.map { $0["reason"] } == ["done"]
            }
            try await page.waitForUnread(1)
            #expect(try await page.complaints() == [])
        }
    }

    @Test("leaving the page ends the user's presence, and going back restores it")
    func left() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await page.open(user: "ada")
            let token = Stack.token(user: "operator", scope: .admin)
            func isOnline() async throws -> Bool? {
                try await gateway.call(.get, "/v1/admin/presence/ada", token: token).body["online"]?.bool
            }
            try await eventually("she is present") { try await isOnline() == true }
            try await browser.open("about:blank")
            try await eventually("she is gone") { try await isOnline() == false }
            // A script that leaves its own page may be dropped on a busy machine.
            try await browser.back()
            try await page.waitUntilOnline()
            try await eventually("she is back") { try await isOnline() == true }
            #expect(try await page.complaints() == [])
        }
    }

    @Test("reading or deleting in one tab shows in the other and on the server")
    func tabs() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            for number in 1...4 { try await stack.notify("ada", "n\(number)") }
            let ada = CompatibilityClient(gateway, user: "ada")
            try await ada.waitForCount(4)
            let first = try await browser.tab()
            try await page.open(user: "ada")
            try await page.waitForTitles(["n4", "n3", "n2", "n1"])
            let second = try await browser.openTab()
            try await page.open(user: "ada")
            try await page.waitForUnread(4)

            try await page.choose("read", of: "n3")
            try await page.waitForUnread(3)
            try await browser.show(first)
            try await page.waitForUnread(3)
            try await page.choose("remove", of: "n4")
            try await page.waitForTitles(["n3", "n2", "n1"])
            try await browser.show(second)
            try await page.waitForTitles(["n3", "n2", "n1"])
            try await browser.click(InboxPage.part(".read-all"))
            try await page.waitForUnread(0)
            try await browser.show(first)
            try await page.waitForUnread(0)
            try await eventually("the server knows") {
                let state = try await ada.get("/v1/notifications/unread-count").body
                return state["unread"]?.integer == 0 && state["total"]?.integer == 3
            }
            try await browser.reload()
            try await page.waitForTitles(["n3", "n2", "n1"])
            #expect(try await page.complaints() == [])
        }
    }

    @Test("older notifications load on request, and the filter shows only unread ones")
    func pages() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            for number in 1...65 { try await stack.notify("ada", "n\(number)") }
            let ada = CompatibilityClient(gateway, user: "ada")
            try await ada.waitForCount(65)
            try await page.open(user: "ada")
            try await eventually("a page is listed") { try await page.titles().count == 30 }
            let focused = "\(InboxPage.root).activeElement"
            try await browser.run("\(InboxPage.part(".more")).focus()")
            try await browser.press(Browser.Key.enter)
            try await eventually("two pages are listed") { try await page.titles().count == 60 }
            try await browser.wait(
                for: "the button has the focus", "\(focused).matches('.more[aria-disabled=false]')")
            let scrolled = "\(InboxPage.part(".list")).scrollTop"
            try await browser.run("\(scrolled) = 0")
            try await browser.press(Browser.Key.enter)
            try await eventually("all are listed") { try await page.titles() == (1...65).reversed().map { "n\($0)" } }
            try await browser.wait(for: "the last page has the focus", "\(focused).textContent === 'n5'")
            let place = try await browser.run("return \(scrolled)")
            #expect(place == .number("0"), "the list stays where the user has scrolled to")
            try await page.choose("read", of: "n65")
            try await browser.click(InboxPage.part("[data-filter=unread]"))
            try await eventually("the others are listed") { try await page.titles().first == "n64" }
        }
    }

    @Test("an unreachable gateway is shown, and missed notifications appear when it returns")
    func offline() async throws {
        let port = "\(try FreePort.next())"
        try await Stack.withBrowser(environment: ["GATEWAY_PORT": port]) { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await stack.notify("ada", "before")
            try await page.open(user: "ada")
            try await page.waitForTitles(["before"])
            gateway.process.send(SIGKILL)
            try await gateway.process.waitForExit()
            try await browser.wait(
                for: "it says that it is offline", "\(InboxPage.part(".banner")).textContent.includes('offline')")
            #expect(try await page.titles() == ["before"])
            try await page.choose("read", of: "before")
            try await browser.wait(for: "it says that this is not saved", InboxPage.part(".toast.shown"))
            try await page.waitForUnread(1)
            try await stack.notify("ada", "meanwhile")
            try await eventually("it is stored") { try await stack.texts(user: "ada").count == 2 }
            _ = try await stack.startGateway(name: "gateway-again", environment: ["GATEWAY_PORT": port])
            // The page may have reconnected already.
            try await browser.run("\(InboxPage.part(".banner button"))?.click()")
            try await page.waitForTitles(["meanwhile", "before"])
            try await page.waitUntilOnline()
            try await page.waitForUnread(2)
            #expect(try await browser.run("return \(InboxPage.part(".banner")).hidden") == .bool(true))
        }
    }

    @Test("quiet hours, zone and preferences are saved, and the service worker is active")
    func settings() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await page.open(user: "ada")
            try await browser.click(InboxPage.part(".card-quiet .toggle input"))
            try await browser.wait(for: "the form is there", "!\(InboxPage.part(".quiet-form")).hidden")
            try await browser.run(
                """
                const form = \(InboxPage.part(".quiet-form"));
                form.elements.start.value = "21:30";
                form.elements.zone.value = "Europe/Berlin";
                form.querySelectorAll("[name=day]")[6].click();
                """)
            try await browser.click(InboxPage.part(".quiet-form button"))
            let ada = CompatibilityClient(gateway, user: "ada")
            try await eventually("they are saved") {
                let settings = try await ada.get("/v1/settings").body
                return settings["zone"]?.string == "Europe/Berlin"
                    && settings["quiet_hours"]?["start"]?.string == "21:30"
                    && settings["quiet_hours"]?["weekdays"]?.array?.count == 6
            }
            let wish = "\(InboxPage.root).querySelector('.type-row input')"
            try await browser.run(
                "\(InboxPage.root).querySelectorAll('details').forEach((one) => { one.open = true; })")
            try await browser.click(wish)
            let type = try await browser.run("return \(wish).checked")
            #expect(type == .bool(false))
            try await eventually("the preference is saved") {
                let types = try await ada.get("/v1/preferences").body["types"]?.array ?? []
                return types.contains {
                    $0["in_app"] == .bool(false) && $0["channels"]?.strings?.contains("in_app") == true
                }
            }
            try await browser.wait(
                for: "the service worker is ready",
                "await navigator.serviceWorker.getRegistration().then((one) => one?.active?.state === 'activated')")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("the page says that the address is missing once e-mail is switched on")
    func missingAddress() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            let ada = CompatibilityClient(gateway, user: "ada")
            try await page.open(user: "ada")
            let note = InboxPage.part(".email-missing")
            let toggle =
                "[...\(InboxPage.root).querySelectorAll('.type-row input')].find((one) => "
                + "one.closest('label').textContent === 'E-mail')"
            try await browser.wait(for: "the note is empty", "\(note)?.textContent === ''")
            try await browser.run(
                "\(InboxPage.root).querySelectorAll('details').forEach((one) => { one.open = true; })")
            try await browser.click(toggle)
            try await browser.wait(for: "the note is there", "\(note).textContent.includes('address is missing')")
            try await browser.reload()
            try await browser.wait(for: "it stays", "\(note).textContent.includes('address is missing')")
            #expect(try await ada.send(.put, "/v1/settings", #"{"email":"ada@example.com"}"#).status == 200)
            try await browser.reload()
            try await browser.wait(for: "the note is gone", "\(note)?.textContent === ''")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a user who stopped all e-mail by a link can have it again")
    func stoppedMail() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            let ada = CompatibilityClient(gateway, user: "ada")
            #expect(try await ada.send(.put, "/v1/settings", #"{"email_opted_out":true}"#).status == 200)
            try await page.open(user: "ada")
            let toggle = InboxPage.part(".card-email .toggle input")
            try await browser.wait(for: "the switch is on", "\(toggle)?.checked")
            try await browser.click(toggle)
            try await eventually("e-mail is on again") {
                try await ada.get("/v1/settings").body["email_opted_out"] == .bool(false)
            }
            try await browser.reload()
            try await browser.wait(for: "the settings are there", InboxPage.part(".card-email"))
            #expect(try await browser.run("return \(toggle) === null") == .bool(true))
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a Web Push is shown, and closed when it is read elsewhere")
    func push() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await stack.notify("ada", "Invoice 9")
            try await page.open(user: "ada")
            try await page.waitForTitles(["Invoice 9"])
            try await browser.wait(
                for: "the service worker is ready",
                "await navigator.serviceWorker.ready.then((one) => one.active.state === 'activated')")
            try await browser.grantNotifications()
            let ada = CompatibilityClient(gateway, user: "ada")
            let found = try await ada.get("/v1/notifications").body["notifications"]?.array?.first?["id"]?.string
            let id = try #require(found)
            let message =
                #"{"title":"Invoice 9","body":"It is due.","notification_id":"\#(id)","badge":1,"options":{"lang":"de"}}"#
            let shown = """
                await navigator.serviceWorker.ready.then((one) => one.getNotifications())
                    .then((list) => list.map((one) => `${one.title}: ${one.body} (${one.lang}) ` +
                        [one.icon, one.badge].map((url) => new URL(url).pathname)).join())
                """
            // A freshly started browser sometimes loses a message, as push services do.
            var isShown = false
            for _ in 0..<6 where !isShown {
                try await browser.deliverPush(message, to: page.url + "/")
                isShown =
                    (try? await eventually("it is shown", within: .seconds(15)) {
                        try await browser.run("return (async () => \(shown))()")
                            == .string("Invoice 9: It is due. (de) /web/icon-192.png,/web/badge.png")
                    }) != nil
            }
            let seen = try await browser.run("return (async () => [Notification.permission, \(shown)])()")
            try #require(isShown, "\(seen)")
            #expect(try await ada.send(.post, "/v1/notifications/\(id)/read").status == 200)
            try await browser.wait(for: "it is gone", "(\(shown)) === ''")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("the inbox works by keyboard, and every control has an accessible name")
    func keyboard() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            for number in 1...3 { try await stack.notify("ada", "n\(number)") }
            let ada = CompatibilityClient(gateway, user: "ada")
            try await ada.waitForCount(3)
            try await page.open(user: "ada")
            try await page.waitForTitles(["n3", "n2", "n1"])
            let focused = "\(InboxPage.root).activeElement"
            try await browser.run("\(InboxPage.item("n3")).querySelector('.title').focus()")
            try await browser.press(Browser.Key.down)
            #expect(try await browser.run("return \(focused).textContent") == .string("n2"))
            try await browser.press(Browser.Key.enter)
            try await page.waitForUnread(2)
            #expect(try await browser.run("return \(focused).textContent") == .string("n2"))
            try await browser.press(Browser.Key.delete)
            try await page.waitForTitles(["n3", "n1"])
            try await browser.wait(for: "the next one has the focus", "\(focused).textContent === 'n1'")
            func hold(_ key: String) async throws -> JSONValue {
                let options = "{ key: '\(key)', repeat: true, bubbles: true, cancelable: true }"
                return try await browser.run(
                    "return \(focused).dispatchEvent(new KeyboardEvent('keydown', \(options)))")
            }
            let goesOn = try await hold("Delete")
            #expect(goesOn == .bool(false), "the list takes a key that is held down, and deletes no more")
            try await browser.press(Browser.Key.home)
            #expect(try await browser.run("return \(focused).textContent") == .string("n3"))
            try await browser.wait(for: "it can be undone", InboxPage.part(".toast.shown .undo"))
            try await browser.press("z")
            try await page.waitForTitles(["n3", "n2", "n1"])
            // A question stays while its button has the focus.
            try await browser.run(
                "return import('/web/inbox-panel.js').then(({ Panel }) => { Panel.toastTime = 1; })")
            try await browser.run("\(InboxPage.part(".list-menu")).focus()")
            try await browser.press(Browser.Key.enter)
            try await browser.wait(for: "the menu is open", "\(InboxPage.part(".menu")).matches(':popover-open')")
            try await browser.press(Browser.Key.end)
            try await browser.press(Browser.Key.enter)
            try await browser.wait(for: "the question has the focus", "\(focused)?.className === 'toast-action'")
            // The key that led to it may still be held down.
            let answers = try await hold("Enter")
            #expect(answers == .bool(false))
            try await browser.press(Browser.Key.enter)
            try await page.waitForTitles(["n3", "n1"])
            let nameless = try await browser.run(
                """
                return [...\(InboxPage.root).querySelectorAll("button, a, input, select")].filter((one) =>
                  !(one.textContent.trim() || one.ariaLabel || one.closest("label")?.textContent.trim()))
                  .map((one) => one.outerHTML);
                """)
            #expect(nameless.strings == [])
        }
    }

    @Test("switches and buttons keep the focus while they cannot be used")
    func keptFocus() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await stack.notify("ada", "n1")
            try await page.open(user: "ada")
            try await page.waitForUnread(1)
            let focused = "\(InboxPage.root).activeElement"
            try await browser.run("\(InboxPage.part(".read-all")).focus()")
            try await browser.press(Browser.Key.enter)
            try await page.waitForUnread(0)
            try await browser.wait(
                for: "the button has the focus", "\(focused).matches('.read-all[aria-disabled=true]')")
            let toggle = InboxPage.part(".card-pause input")
            try await browser.wait(for: "the settings are there", toggle)
            try await browser.run("\(toggle).focus()")
            for isOn in [true, false] {
                try await browser.press(" ")
                let isBusy = "\(toggle).ariaDisabled || \(toggle).disabled"
                try await browser.wait(for: "it is saved", "\(toggle).checked === \(isOn) && !(\(isBusy))")
            }
            let isFocused = try await browser.run("return \(focused) === \(toggle)")
            #expect(isFocused == .bool(true))
            let complaints = try await page.complaints()
            #expect(complaints == [])
        }
    }

    @Test("an inbox without the element takes a relative URL, also for its socket")
    func relativeURL() async throws {
        try await Stack.withBrowser(startsDispatcher: false) { _, gateway, browser in
            try await browser.open("http://127.0.0.1:\(gateway.port)/")
            try await browser.run(
                """
                return import("/web/inbox.js").then(async ({ Inbox }) => {
                  window.inbox = new Inbox("/", async () => "\(Stack.token(user: "ada"))", "en");
                  await inbox.open();
                });
                """)
            try await browser.wait(for: "it is online", "inbox.state === 'online'")
        }
    }

    @Test("another site embeds the bell under its own strict policy")
    func bell() async throws {
        let host = try FreePort.next()
        try await Stack.withBrowser(environment: ["ALLOWED_ORIGINS": "http://127.0.0.1:\(host)"]) {
            stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            let url = "http://127.0.0.1:\(gateway.port)"
            let socket = "ws://127.0.0.1:\(gateway.port)"
            let html = """
                <!DOCTYPE html><html lang="en"><head><title>Shop</title><meta http-equiv="Content-Security-Policy"
                content="default-src 'none'; script-src \(url); connect-src \(url) \(socket); img-src https:">
                <script type="module" src="\(url)/carillon.js"></script></head>
                <body><carillon-inbox token="\(Stack.token(user: "ada"))"></carillon-inbox></body></html>
                """
            try await HTTPStub.with(HTTPStub.Answer(body: html), port: host) { stub in
                try await browser.open(stub.url)
                try await page.waitUntilOnline()
                try await stack.notify("ada", "Hello")
                try await browser.wait(for: "the badge counts", "\(InboxPage.part(".badge")).textContent === '1'")
                let bell = InboxPage.part(".bell")
                #expect(
                    try await browser.run("return \(bell).getAttribute('aria-label')")
                        == .string("Notifications, 1 unread"))
                try await browser.click(bell)
                try await browser.wait(
                    for: "the panel is open", "\(InboxPage.part(".popover")).matches(':popover-open')")
                #expect(try await browser.run("return \(bell).getAttribute('aria-expanded')") == .string("true"))
                try await browser.press(Browser.Key.escape)
                try await browser.wait(for: "it is closed", "!\(InboxPage.part(".popover")).matches(':popover-open')")
                try await browser.wait(for: "the bell has the focus", "\(InboxPage.root).activeElement === \(bell)")
                #expect(try await page.complaints() == [])
            }
        }
    }

    @Test("a link with a token asks before it signs in, and declining keeps the current user")
    func link() async throws {
        try await Stack.withBrowser { _, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await page.follow(user: "ada")
            #expect(try await browser.run("return sessionStorage.length + localStorage.length") == .number("0"))
            #expect(try await browser.run("return location.hash") == .string(""))
            try await browser.click("document.getElementById('decline')")
            try await browser.wait(for: "the form is there", "document.getElementById('token')")
            try await page.open(user: "ada")
            let name = "document.getElementById('name').textContent"
            try await page.follow(user: "eve")
            let asked = try await browser.run("return document.querySelector('.sign-in').textContent").string ?? ""
            #expect(asked.contains("as eve") && asked.contains("as ada"))
            try await browser.click("document.getElementById('decline')")
            try await page.waitUntilOnline()
            try await browser.wait(for: "it names ada", "\(name) === 'ada'")
            try await page.open(user: "eve")
            try await browser.wait(for: "it names eve", "\(name) === 'eve'")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("an expired token asks for a new one, and a bad one is explained")
    func signedOut() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await browser.open(page.url)
            try await browser.type("no-token", into: "document.getElementById('token')")
            try await browser.click("document.querySelector('.sign-in button')")
            try await browser.wait(
                for: "it says why", "document.getElementById('token-fault').textContent.includes('three parts')")
            let token = Stack.token(user: "ada")
            try await browser.run("document.getElementById('token').value = ''")
            try await browser.type(token, into: "document.getElementById('token')")
            try await browser.click("document.querySelector('.sign-in button')")
            try await page.waitUntilOnline()
            let service = Stack.token(user: "backend", scope: .service)
            #expect(try await gateway.call(.post, "/v1/users/ada/revoke-tokens", token: service).status == 200)
            try await browser.wait(
                for: "the form is back", "document.querySelector('.sign-in .fault')?.textContent.includes('refused')")
            #expect(try await browser.run("return sessionStorage.length + localStorage.length") == .number("0"))
        }
    }

    @Test("a refused token leaves the one alone that another tab has kept meanwhile, and the page takes that")
    func signedInElsewhere() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await browser.open(page.url)
            try await browser.click("document.querySelector('.sign-in [name=remember]')")
            try await browser.type(Stack.token(user: "ada"), into: "document.getElementById('token')")
            try await browser.click("document.querySelector('.sign-in button')")
            try await page.waitUntilOnline()
            let kept = "localStorage.getItem('carillon.inbox.token')"
            let fresh = Stack.token(user: "eve")
            try await browser.run("localStorage.setItem('carillon.inbox.token', '\(fresh)')")
            let service = Stack.token(user: "backend", scope: .service)
            #expect(try await gateway.call(.post, "/v1/users/ada/revoke-tokens", token: service).status == 200)
            try await browser.wait(for: "it names eve", "document.getElementById('name').textContent === 'eve'")
            try await page.waitUntilOnline()
            #expect(try await browser.run("return \(kept)") == .string(fresh))
        }
    }

    @Test("what comes with a sync arrives, except for what is read, known or older than the list")
    func syncArrivals() async throws {
        let arrived = try await Stack.runScript(
            """
            return import("/web/inbox-store.js").then(({ InboxStore }) => {
              const store = new InboxStore();
              const item = (id, version, read_at = null) => ({ id, version, read_at });
              const arrived = [];
              store.addEventListener("arrival", ({ detail }) => arrived.push(`${detail.id} of ${store.version}`));
              store.replace({ notifications: [item("b", 4)], next_cursor: "b", version: 4, unread: 1, total: 2 });
              const sync = { type: "sync", version: 9, unread: 4, total: 5, deleted: [], reset: false };
              const changes = [item("e", 9), item("d", 8), item("c", 6, "2026-01-01T00:00:00Z"), item("b", 5), item("a", 7)];
              store.apply({ ...sync, notifications: changes });
              store.apply({ ...sync, notifications: changes });
              store.apply({ ...sync, notifications: [item("f", 10)], version: 10, reset: true });
              return arrived;
            });
            """)
        #expect(arrived.strings == ["d of 9", "e of 9"])
    }

    @Test("a sync changes a loaded tab also below the end of the list of everything")
    func syncOfTab() async throws {
        let shown = try await Stack.runScript(
            """
            return import("/web/inbox-store.js").then(({ InboxStore }) => {
              const store = new InboxStore();
              const item = (id, version, read_at = null) => ({ id, version, read_at });
              const read = item("m", 4, "2026-01-01T00:00:00Z");
              store.replace({ notifications: [read], next_cursor: "m", version: 4, unread: 0, total: 2 });
              store.append({ notifications: [], next_cursor: null }, { isUnread: true });
              const sync = { type: "sync", version: 5, unread: 1, total: 2, deleted: [], reset: false };
              store.apply({ ...sync, notifications: [item("b", 5)] });
              return [store.list({ isUnread: true }), store.list()].map((list) => list.map(({ id }) => id).join());
            });
            """)
        #expect(shown.strings == ["b", "m"])
    }

    @Test("reading or deleting all up to a version leaves later notifications alone")
    func upToVersion() async throws {
        let left = try await Stack.runScript(
            """
            return import("/web/inbox-store.js").then(({ InboxStore }) => {
              const store = new InboxStore();
              const item = (id, version) => ({ id, version, read_at: null });
              store.replace({ notifications: [item("a", 3), item("b", 9)], next_cursor: null, version: 4, unread: 2, total: 2 });
              const change = { up_to_version: 5, at: "2026-01-01T00:00:00Z" };
              store.apply({ type: "read", version: 5, unread: 1, change: { ...change, all: true } });
              const unread = store.list({ isUnread: true }).map(({ id }) => id);
              store.apply({ type: "deleted", version: 6, unread: 1, change: { ...change, all_read: true } });
              return [...unread, "|", ...store.list().map(({ id }) => id), store.total];
            });
            """)
        #expect(left.array == [.string("b"), .string("|"), .string("b"), .number("1")])
    }

    @Test("an answer with the unread count, which may be older, leaves the count of the last change")
    func olderCount() async throws {
        let count = try await Stack.runScript(
            """
            return import("/web/inbox-store.js").then(({ InboxStore }) => {
              const store = new InboxStore();
              store.replace({ notifications: [], next_cursor: null, version: 4, unread: 2, total: 2 });
              store.apply({ type: "unread", unread: 9 });
              return store.unread;
            });
            """)
        #expect(count == .number("2"))
    }

    @Test("a row's buttons never cover the day's heading, and the row names its type")
    func rows() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            for number in 1...20 { try await stack.notify("ada", "n\(number)", [("category", "TASK_ACTIONABLE")]) }
            let ada = CompatibilityClient(gateway, user: "ada")
            try await ada.waitForCount(20)
            try await page.open(user: "ada")
            try await eventually("all are listed") { try await page.titles().count == 20 }
            let covering = try await browser.run(
                """
                const list = \(InboxPage.part(".list"));
                const tools = \(InboxPage.root).querySelectorAll(".tools")[3].getBoundingClientRect();
                const day = \(InboxPage.part(".day")).getBoundingClientRect();
                list.scrollTop = tools.top + tools.height / 2 - (day.top + day.height / 2);
                const found = \(InboxPage.root).elementFromPoint(tools.left + tools.width / 2, day.top + day.height / 2);
                return [list.scrollTop > 0, found.className];
                """)
            #expect(covering == .array([.bool(true), .string("day")]))
            let label = try await browser.run("return \(InboxPage.part(".item .type")).textContent")
            #expect(label == .string("Invoice created"))
        }
    }

    @Test("an unhandled button follows its link, or says that it is not available")
    func unhandledButtons() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            let data = #"{"actions":[{"id":"done","title":"Done"}]}"#
            try await stack.notify("ada", "plain", [("data", data)])
            try await stack.notify("ada", "linked", [("data", data), ("url", "\(page.url)/web/icon.svg")])
            try await page.open(user: "ada")
            try await page.waitForTitles(["linked", "plain"])
            try await browser.click("\(InboxPage.item("plain")).querySelector('.action')")
            try await browser.wait(
                for: "it says so",
                "\(InboxPage.part(".toast.shown"))?.textContent === '“Done” is not available on this page.'")
            try await browser.click("\(InboxPage.item("linked")).querySelector('.action')")
            try await browser.wait(for: "the link is followed", "location.pathname === '/web/icon.svg'")
        }
    }

    @Test("quiet hours without a day or without two different times are refused, and nothing changes")
    func noQuietHours() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            let ada = CompatibilityClient(gateway, user: "ada")
            let hours = #"{"start":"21:00","end":"06:00","weekdays":[1]}"#
            #expect(try await ada.send(.put, "/v1/preferences/quiet-hours", hours).status == 200)
            try await page.open(user: "ada")
            try await browser.wait(for: "the settings are there", InboxPage.part(".quiet-form"))
            try await browser.run("\(InboxPage.part(".quiet-form")).elements.end.value = '21:00'")
            for reason in ["two different times", "at least one day"] {
                try await browser.click(InboxPage.part(".quiet-form button"))
                try await browser.wait(
                    for: "it says why",
                    "\(InboxPage.part(".quiet-form .status.fault"))?.textContent.includes('\(reason)')")
                try await browser.run("\(InboxPage.part(".quiet-form [name=day]:checked"))?.click()")
            }
            let kept = try await ada.get("/v1/settings").body["quiet_hours"]
            #expect(kept?["start"]?.string == "21:00")
            #expect(kept?["weekdays"]?.array?.count == 1)
        }
    }

    @Test("the page uses the browser's language and its writing direction")
    func languages() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            for (languages, word, direction) in [
                ("fr-CH,en", "Se connecter", "ltr"), ("xx,de", "Anmelden", "ltr"), ("ar", "تسجيل الدخول", "rtl"),
                ("xx", "Sign in", "ltr"),
            ] {
                try await browser.setLanguages(languages)
                try await browser.open(page.url)
                try await browser.wait(for: "the form is there", "document.querySelector('.sign-in button')")
                #expect(
                    try await browser.run("return document.querySelector('.sign-in button').textContent")
                        == .string(word))
                #expect(try await browser.run("return document.documentElement.dir") == .string(direction))
            }
            try await browser.setLanguages("de")
            try await page.open(user: "ada")
            try await browser.wait(
                for: "the inbox speaks it too", "\(InboxPage.part(".state.empty h3"))?.textContent === 'Alles ruhig'")
        }
    }

    @Test("a click on a push counts as opened without a page or storage; the bell inherits the header's colour")
    func clickWithoutPage() async throws {
        let host = try FreePort.next()
        try await Stack.withBrowser(environment: ["ALLOWED_ORIGINS": "http://127.0.0.1:\(host)"]) {
            stack, gateway, browser in
            let gatewayURL = "http://127.0.0.1:\(gateway.port)"
            try await stack.notify("ada", "Invoice 9")
            let ada = CompatibilityClient(gateway, user: "ada")
            try await ada.waitForCount(1)
            let found = try await ada.get("/v1/notifications").body["notifications"]?.array?.first?["id"]?.string
            let id = try #require(found)
            // The service worker clicks in the user's place.
            let worker = """
                importScripts("\(gatewayURL)/sw.js");
                addEventListener("message", async ({ data, source }) => {
                  if (data !== "click" && data !== "click while full") return;
                  if (data !== "click") Cache.prototype.put = async () => { throw new DOMException("full", "QuotaExceededError"); };
                  const [notification] = await registration.getNotifications();
                  dispatchEvent(new NotificationEvent("notificationclick", { notification }));
                });
                """
            let plain = HTTPStub.Answer(body: "<!DOCTYPE html><title>Shop</title>", type: "text/html")
            try await HTTPStub.with(plain, port: host) { stub in
                try await browser.open(stub.url)
                try await browser.grantNotifications()
                stub.answer(HTTPStub.Answer(body: worker, type: "text/javascript"))
                try await browser.run("navigator.serviceWorker.register('/worker.js')")
                try await browser.wait(
                    for: "the service worker is ready",
                    "await navigator.serviceWorker.ready.then((one) => one.active.state === 'activated')")
                try await browser.run(
                    """
                    return (async () => {
                      const worker = await navigator.serviceWorker.ready;
                      await worker.showNotification("Invoice 9", { data: { id: "\(id)", urls: {} } });
                      worker.active.postMessage("click");
                    })()
                    """)
                let kept = "(await caches.open('carillon clicks \(stub.url)/').then((one) => one.keys())).length"
                try await browser.wait(for: "the click is kept", "\(kept) === 1")
                #expect(try await ada.get("/v1/notifications/unread-count").body["unread"]?.integer == 1)
                let token = Stack.token(user: "ada")
                let html = """
                    <!DOCTYPE html><html lang="en"><head><title>Shop</title>
                    <script type="module" src="\(gatewayURL)/carillon.js"></script></head>
                    <body><header style="background: #000; color: #fff"><carillon-inbox token="\(token)"></carillon-inbox></header></body></html>
                    """
                stub.answer(HTTPStub.Answer(body: html, type: "text/html"))
                try await browser.open(stub.url)
                try await eventually("it counts as opened") {
                    try await stack.query("SELECT FROM carillon.notifications WHERE opened_at IS NOT NULL").count == 1
                }
                try await browser.wait(for: "no click is left", "\(kept) === 0")
                let colour = try await browser.run("return getComputedStyle(\(InboxPage.part(".bell"))).color")
                #expect(colour == .string("rgb(255, 255, 255)"))
                try await stack.notify("ada", "Invoice 10")
                try await ada.waitForCount(2)
                let newest = try await ada.get("/v1/notifications").body["notifications"]?.array?.first?["id"]?.string
                let next = try #require(newest)
                try await browser.run(
                    """
                    return (async () => {
                      const worker = await navigator.serviceWorker.ready;
                      await worker.showNotification("Invoice 10", { data: { id: "\(next)", urls: {} } });
                      worker.active.postMessage("click while full");
                    })()
                    """)
                try await eventually("the open page reports the click") {
                    try await stack.query("SELECT FROM carillon.notifications WHERE opened_at IS NOT NULL").count == 2
                }
            }
        }
    }
}
