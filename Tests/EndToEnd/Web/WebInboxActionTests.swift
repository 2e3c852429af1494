// Carillon · WebInboxActionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Support
import Testing

@testable import Clients
@testable import HTTP

/// Actions in the inbox page, and pages that change its looks.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled))
struct WebInboxActionTests {
    private static let toast = InboxPage.part(".toast.shown")

    @Test("unread again, archive and delete can be undone, and a snooze names its time")
    func undo() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            for title in ["n1", "n2", "n3"] { try await stack.notify("ada", title) }
            let ada = CompatibilityClient(gateway, user: "ada")
            try await ada.waitForCount(3)
            try await page.open(user: "ada")
            try await page.waitForTitles(["n3", "n2", "n1"])
            let menu = "\(InboxPage.item("n1")).querySelector('[data-part=more]')"
            try await browser.click(menu)
            try await browser.wait(for: "the menu is open", "\(InboxPage.part(".menu")).matches(':popover-open')")
            try await browser.click(menu)
            try await browser.wait(
                for: "another click closes it", "!\(InboxPage.part(".menu")).matches(':popover-open')")
            try await page.choose("read", of: "n2")
            try await page.waitForUnread(2)
            try await page.choose("unread", of: "n2")
            try await page.waitForUnread(3)
            for (entry, word) in [("remove", "Deleted"), ("archive", "Archived"), ("snooze-tomorrow", "Snoozed until")]
            {
                try await page.choose(entry, of: "n2")
                try await page.waitForTitles(["n3", "n1"])
                try await browser.wait(for: "it says so", "\(Self.toast)?.textContent.startsWith('\(word)')")
                try await ada.waitForCount(2)
                try await browser.click("\(Self.toast).querySelector('button')")
                try await page.waitForTitles(["n3", "n2", "n1"])
                try await ada.waitForCount(3)
            }
            #expect(try await stack.query("SELECT FROM carillon.schedules").isEmpty)
            let expanded = try await browser.run(
                """
                const buttons = [...\(InboxPage.root).querySelectorAll('[data-part=more]')];
                for (const button of buttons.slice(0, 2)) button.click();
                return buttons.map((one) => one.ariaExpanded);
                """)
            #expect(expanded.strings == ["false", "true", "false"], "only one menu is open")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("the archive is listed, moves back to the inbox, and deletes; an undo brings back to the archive")
    func archive() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            for title in ["n1", "n2", "n3"] { try await stack.notify("ada", title) }
            let ada = CompatibilityClient(gateway, user: "ada")
            try await ada.waitForCount(3)
            try await page.open(user: "ada")
            try await page.choose("archive", of: "n1")
            try await page.choose("archive", of: "n2")
            try await page.waitForTitles(["n3"])
            try await browser.click(InboxPage.part(".list-menu"))
            try await browser.click(InboxPage.part("[data-entry=archive]"))
            try await page.waitForTitles(["n2", "n1"])
            #expect(try await browser.run("return \(InboxPage.part("h2")).textContent") == .string("Archived"))
            try await browser.click("\(InboxPage.item("n2")).querySelector('[data-part=restore]')")
            try await page.waitForTitles(["n1"])
            try await browser.run("\(InboxPage.item("n1")).querySelector('.title').focus()")
            try await browser.press(Browser.Key.delete)
            try await browser.wait(for: "the archive is empty", InboxPage.part(".state.emptyArchive"))
            func archived() async throws -> Int? {
                try await ada.get("/v1/notifications/archived").body["notifications"]?.array?.count
            }
            try await eventually("the server has deleted it") { try await archived() == 0 }
            try await browser.click("\(Self.toast).querySelector('.undo')")
            try await page.waitForTitles(["n1"])
            #expect(try await archived() == 1)
            try await browser.run(
                """
                return import("/web/inbox-styles.js").then(({ sheet }) => {
                  const touch = [...sheet.cssRules].find((rule) => rule.conditionText === "(hover: none)");
                  touch.media.mediaText = "all";
                });
                """)
            try await browser.click("\(InboxPage.item("n1")).querySelector('[data-part=remove]')")
            try await browser.wait(for: "the archive is empty on a phone too", InboxPage.part(".state.emptyArchive"))
            try await eventually("the server has deleted it again") { try await archived() == 0 }
            try await browser.click(InboxPage.part(".list-menu"))
            try await browser.wait(for: "the menu is open", "\(InboxPage.part(".menu")).matches(':popover-open')")
            let entries = try await browser.run(
                "return [...\(InboxPage.part(".menu")).children].map((one) => one.dataset.entry)")
            #expect(entries.strings == ["archive"], "the archive's menu offers nothing about the inbox")
            try await browser.press(Browser.Key.escape)
            try await browser.click(InboxPage.part(".leave"))
            try await page.waitForTitles(["n3", "n2"])
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a button press is reported although the page removes the inbox at once")
    func removal() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await stack.notify("ada", "n1", [("data", #"{"actions":[{"id":"done","title":"Done"}]}"#)])
            try await page.open(user: "ada")
            try await page.waitForTitles(["n1"])
            try await browser.run(
                "addEventListener('carillon-action', () => document.querySelector('carillon-inbox').remove())")
            try await browser.click("\(InboxPage.item("n1")).querySelector('.action')")
            try await eventually("upstream apps hear of it") {
                try await stack.events().filter { $0["event"] == "acted" }.map { $0["reason"] } == ["done"]
            }
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a button keeps the focus when its notification changes, whatever characters its id has")
    func focus() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await stack.notify(
                "ada", "n1", [("data", #"{"actions":[{"id":"no","title":"No"},{"id":"say \"yes\"","title":"Yes"}]}"#)])
            let ada = CompatibilityClient(gateway, user: "ada")
            try await ada.waitForCount(1)
            try await page.open(user: "ada")
            try await page.waitForTitles(["n1"])
            let focused = "\(InboxPage.root).activeElement?.textContent === 'Yes'"
            try await browser.run("\(InboxPage.item("n1")).querySelectorAll('.action')[1].focus()")
            try await browser.wait(for: "the button has the focus", focused)
            let id = try #require(try await ada.get("/v1/notifications").body["notifications"]?.texts("id").first)
            #expect(try await ada.send(.post, "/v1/notifications/\(id)/read").status == 200)
            try await page.waitForUnread(0)
            try await browser.wait(for: "the button still has the focus", focused)
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a type is turned off from a notification's menu; an undo leaves the user's own choices as they were")
    func mute() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await stack.notify("ada", "n1")
            let ada = CompatibilityClient(gateway, user: "ada")
            try await ada.waitForCount(1)
            let choice = #"{"types":[{"type":"invoice_created","push":true}]}"#
            #expect(try await ada.send(.put, "/v1/preferences", choice).status == 200)
            try await page.open(user: "ada")
            try await page.waitForTitles(["n1"])
            func preference() async throws -> JSONValue? {
                let types = try await ada.get("/v1/preferences").body["types"]?.array ?? []
                return types.first { $0["type"]?.string == "invoice_created" }
            }
            func isOn() async throws -> Bool? { try await preference()?["in_app"]?.bool }
            try await page.choose("mute", of: "n1")
            try await eventually("it is off") { try await isOn() == false }
            try await browser.wait(
                for: "it says so", "\(Self.toast)?.textContent.startsWith('“Invoice created” is off')")
            try await browser.click("\(Self.toast).querySelector('button')")
            try await eventually("it is on") { try await isOn() == true }
            let own = try await preference()?["own"]
            #expect(own?["in_app"] == .null && own?["push"] == .bool(true))
        }
    }

    @Test("a disabled type is turned off on all channels, and an undo leaves no choice")
    func muteDisabled() async throws {
        try await Stack.with { stack in
            // The dispatcher still has the type enabled.
            let gateway = try await stack.startGateway(
                environment: try stack.catalog("types: {invoice_created: {enabled: false}}"))
            _ = try await stack.startDispatcher()
            try await stack.notify("ada", "n1")
            try await CompatibilityClient(gateway, user: "ada").waitForCount(1)
            try await Browser.with(in: stack.directory.path, http: stack.http) { browser in
                let page = InboxPage(browser, gateway)
                try await page.open(user: "ada")
                try await page.waitForTitles(["n1"])
                func choices() async throws -> [String] {
                    let rows = try await stack.query(
                        "SELECT concat_ws(' ', in_app, push, email) FROM carillon.preferences WHERE user_id = 'ada'")
                    return try rows.map { try $0.text(0) }
                }
                try await page.choose("mute", of: "n1")
                try await eventually("it is off") { try await choices() == ["f f f"] }
                try await browser.wait(for: "it says so", Self.toast)
                try await browser.click("\(Self.toast).querySelector('button')")
                try await eventually("no choice is left") { try await choices() == [""] }
            }
        }
    }

    @Test("tabs show one category each, and count what is unread")
    func categories() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await stack.notify("ada", "invoice")
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "payment")])
            let ada = CompatibilityClient(gateway, user: "ada")
            try await ada.waitForCount(2)
            try await page.open(user: "ada")
            let tab = InboxPage.part("[data-filter='category:payments']")
            try await browser.wait(for: "the tab counts", "\(tab)?.textContent === 'Payments1'")
            try await browser.click(tab)
            try await page.waitForTitles(["payment"])
            try await browser.click(InboxPage.part("[data-filter='category:account']"))
            try await browser.wait(for: "it has none", InboxPage.part(".state.emptyCategory"))
            try await browser.click(InboxPage.part("[data-filter=all]"))
            try await page.waitForTitles(["payment", "invoice"])
        }
    }

    @Test("new notifications above the visible part are counted in a pill, which leads to them")
    func pill() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            for number in 1...20 { try await stack.notify("ada", "n\(number)") }
            let ada = CompatibilityClient(gateway, user: "ada")
            try await ada.waitForCount(20)
            try await page.open(user: "ada")
            try await eventually("all are listed") { try await page.titles().count == 20 }
            try await browser.run("\(InboxPage.part(".list")).scrollTop = 300")
            let top = "\(InboxPage.item("n12")).getBoundingClientRect().top"
            try await browser.run("window.before = \(top)")
            try await stack.notify("ada", "new 1")
            try await stack.notify("ada", "new 2")
            let pill = InboxPage.part(".pill")
            try await browser.wait(for: "the pill counts", "\(pill).textContent === '2 new notifications'")
            #expect(try await browser.run("return !\(pill).hidden") == .bool(true))
            // Scroll positions are whole pixels.
            #expect(try await browser.run("return Math.abs(\(top) - window.before) < 2") == .bool(true))
            try await browser.click(pill)
            try await browser.wait(for: "the pill is gone", "\(pill).hidden")
            #expect(try await browser.run("return \(InboxPage.part(".list")).scrollTop") == .number("0"))
        }
    }

    @Test("arrivals beyond 1,000 drop the oldest, which the next page brings again")
    func bounds() async throws {
        let sizes = try await Stack.runScript(
            """
            return import("/web/inbox-store.js").then(({ InboxStore }) => {
              const store = new InboxStore();
              const item = (number) => ({ id: String(number), version: number, read_at: null });
              const arrive = (number) =>
                store.apply({ type: "notification", version: number, unread: 1, notification: item(number) });
              const look = (filter) => `${store.list(filter).length} from ${store.cursor(filter)}`;
              store.replace({ notifications: [item(1001)], next_cursor: null, version: 1001, unread: 1, total: 1 });
              for (let number = 1002; number <= 2010; number += 1) arrive(number);
              const found = [look({}), look({ isUnread: true })];
              store.append({ notifications: [item(1010), item(1009)], next_cursor: "1009" }, {});
              found.push(look({}));
              arrive(2011);
              found.push(look({}), store.total);
              return found.map(String);
            });
            """)
        let expected = ["1000 from 1011", "1000 from 1011", "1002 from 1009", "1002 from 1010", "1011"]
        #expect(sizes.strings == expected)
    }

    @Test("texts have bold, emphasised and code parts, and nothing else is markup")
    func marks() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await stack.notify(
                "ada", "**Paid** in _full_",
                [
                    ("body", "a_b_c 2 ** 3 `x_y` <b>no</b> **b** and __init__"),
                    ("data", #"{"actor":{"name":"Mia Sommer"}}"#),
                ])
            try await page.open(user: "ada")
            try await page.waitForTitles(["Paid in full"])
            let parts = try await browser.run(
                """
                const item = \(InboxPage.part(".item"));
                return [...item.querySelectorAll("strong, em, code")].map((one) => `${one.localName}:${one.textContent}`)
                  .concat(item.querySelector(".body").textContent, item.querySelector(".initials").textContent);
                """)
            #expect(
                parts.strings == [
                    "strong:Paid", "em:full", "code:x_y", "strong:b", "a_b_c 2 ** 3 x_y <b>no</b> b and __init__", "MS",
                ])
        }
    }

    @Test("the address for e-mail is saved from the settings, and a bad one is refused")
    func address() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            let page = InboxPage(browser, gateway)
            let ada = CompatibilityClient(gateway, user: "ada")
            try await page.open(user: "ada")
            let form = InboxPage.part(".address-form")
            try await browser.wait(for: "the form is there", form)
            try await browser.run("\(form).elements.email.value = 'nobody'")
            try await browser.click("\(form).querySelector('button')")
            try await browser.wait(for: "it says why", "\(form).querySelector('.status.fault')?.textContent")
            try await browser.run("\(form).elements.email.value = 'ada@example.com'")
            try await browser.click("\(form).querySelector('button')")
            try await eventually("it is saved") {
                try await ada.get("/v1/settings").body["email"]?.string == "ada@example.com"
            }
        }
    }

    @Test("a bell and feeds share one socket; a page draws items, words and an empty inbox its own way if it can")
    func ownLooks() async throws {
        let host = try FreePort.next()
        try await Stack.withBrowser(environment: ["ALLOWED_ORIGINS": "http://127.0.0.1:\(host)"]) {
            stack, gateway, browser in
            let url = "http://127.0.0.1:\(gateway.port)"
            let token = Stack.token(user: "ada")
            let html = """
                <!DOCTYPE html><html lang="en"><head><title>Shop</title>
                <script type="module" src="\(url)/carillon.js"></script>
                <script>
                  addEventListener("DOMContentLoaded", () => {
                    const bell = document.querySelector("#bell");
                    bell.texts = { notifications: "News for you" };
                    bell.renderItem = (item) => {
                      if (item.org) throw new Error("this page cannot draw it");
                      return item.type === "payment_received"
                        ? Object.assign(document.createElement("b"), { textContent: `Money: ${item.title}` }) : null;
                    };
                  });
                </script></head><body>
                <carillon-inbox id="bell" token="\(token)"></carillon-inbox>
                <carillon-inbox id="payments" view="page" category="payments" token="\(token)"></carillon-inbox>
                <carillon-inbox id="acme" view="page" org="acme" token="\(token)"></carillon-inbox>
                <carillon-inbox id="reports" view="page" category="reports" token="\(token)">
                  <p slot="empty">Come back on Monday.<input></p></carillon-inbox>
                </body></html>
                """
            try await HTTPStub.with(HTTPStub.Answer(body: html, type: "text/html"), port: host) { stub in
                try await browser.open(stub.url)
                func root(_ id: String) -> String { "document.querySelector('#\(id)').shadowRoot" }
                for id in ["bell", "payments", "acme", "reports"] {
                    try await browser.wait(
                        for: "\(id) is online", "\(root(id))?.querySelector('.panel')?.dataset.state === 'online'")
                }
                let operators = Stack.token(user: "operator", scope: .admin)
                let presence = try await gateway.call(.get, "/v1/admin/presence/ada", token: operators).body
                #expect(presence["connections"]?.array?.count == 1)
                try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "€ 5")])
                try await stack.notify("ada", "a bill")
                try await stack.notify("ada", "**an invoice**", [("org", "acme")])
                try await browser.wait(
                    for: "the badge counts", "\(root("bell")).querySelector('.badge').textContent === '3'")
                try await browser.click("\(root("bell")).querySelector('.bell')")
                let titles = try await browser.run(
                    """
                    const titles = (id) => [...document.querySelector(id).shadowRoot.querySelectorAll('.title')]
                      .map((one) => one.textContent).join();
                    return [titles("#bell"), titles("#payments"), titles("#acme"), titles("#reports")];
                    """)
                #expect(titles.strings == ["an invoice,a bill,Money: € 5", "€ 5", "an invoice", ""])
                let spoken = try await browser.run(
                    """
                    return ["#payments", "#acme", "#reports"].map((id) =>
                      document.querySelector(id).shadowRoot.querySelector(".spoken").textContent);
                    """)
                #expect(spoken.strings == ["New: € 5", "New: an invoice", ""], "each feed announces its own")
                let menus = try await browser.run(
                    """
                    return ["#bell", "#payments", "#acme"].map((id) =>
                      document.querySelector(id).shadowRoot.querySelectorAll(".list-menu").length).join();
                    """)
                #expect(menus == .string("1,0,0"), "a feed does not offer to delete those of others")
                #expect(
                    try await browser.run("return \(root("bell")).querySelector('h2').textContent")
                        == .string("News for you"))
                #expect(
                    try await browser.run(
                        "return \(root("reports")).querySelector('slot[name=empty]').assignedElements()[0].textContent")
                        == .string("Come back on Monday."))
                let isKept = try await browser.run(
                    """
                    const press = (key) => new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
                    const field = document.querySelector("#reports input");
                    return ["ArrowDown", "Home"].every((key) => field.dispatchEvent(press(key)));
                    """)
                #expect(isKept == .bool(true), "the list takes no keys of the page's own field")
                for id in ["payments", "acme"] {
                    try await browser.wait(for: "\(id) counts its own", "document.querySelector('#\(id)').unread === 1")
                }
                try await browser.wait(
                    for: "the organisation's tabs count its own",
                    "\(root("acme")).querySelector(\"[data-filter='category:payments'] .count\").hidden")
            }
        }
    }

    @Test("settings and Web Push whose scripts failed to load come with the next try; a logout reports the failure")
    func lostScripts() async throws {
        let host = try FreePort.next()
        try await Stack.withBrowser(
            environment: ["ALLOWED_ORIGINS": "http://127.0.0.1:\(host)"], startsDispatcher: false
        ) { _, gateway, browser in
            let url = "http://127.0.0.1:\(gateway.port)"
            // The element also tries to load push when it comes online.
            let lost = (["settings.js", "push.js"] + (1...9).map { "push.js?again=\($0)" })
                .map { #""\#(url)/web/inbox-\#($0)": "\#(url)/web/lost.js""# }
            let html = """
                <!DOCTYPE html><html lang="en"><head><title>Shop</title>
                <script type="importmap">{"imports": {\(lost.joined(separator: ", "))}}</script>
                <script type="module" src="\(url)/carillon.js"></script></head><body>
                <carillon-inbox view="page" worker="/worker.js" token="\(Stack.token(user: "ada"))"></carillon-inbox>
                </body></html>
                """
            try await HTTPStub.with(HTTPStub.Answer(body: html, type: "text/html"), port: host) { stub in
                try await browser.open(stub.url)
                try await InboxPage(browser, gateway).waitUntilOnline()
                let retry = InboxPage.part(".side .fault + button")
                try await browser.wait(for: "it says that the settings are lost", retry)
                let logout =
                    "return document.querySelector('carillon-inbox').switchPushOff().then(() => 'off', () => 'failed')"
                let first = try await browser.run(logout)
                #expect(first == .string("failed"))
                try await browser.click(retry)
                try await browser.wait(for: "the settings are there", InboxPage.part(".side .card-browser"))
                try await eventually("push is loaded") { try await browser.run(logout) == .string("off") }
            }
        }
    }

    @Test("menus load once the inbox is online; if that fails, each click tries again, and a toast says if it fails")
    func lostMenus() async throws {
        let host = try FreePort.next()
        try await Stack.withBrowser(
            environment: ["ALLOWED_ORIGINS": "http://127.0.0.1:\(host)"], startsDispatcher: false
        ) { _, gateway, browser in
            let url = "http://127.0.0.1:\(gateway.port)"
            let html = """
                <!DOCTYPE html><html lang="en"><head><title>Shop</title>
                <script type="importmap">{"imports": {
                  "\(url)/web/menu.js": "\(url)/web/lost.js", "\(url)/web/menu.js?again=1": "\(url)/web/lost.js"
                }}</script>
                <script type="module" src="\(url)/carillon.js"></script></head><body>
                <carillon-inbox view="page" token="\(Stack.token(user: "ada"))"></carillon-inbox>
                </body></html>
                """
            try await HTTPStub.with(HTTPStub.Answer(body: html, type: "text/html"), port: host) { stub in
                try await browser.open(stub.url)
                try await InboxPage(browser, gateway).waitUntilOnline()
                let (button, menu) = (InboxPage.part(".list-menu"), InboxPage.part(".menu"))
                try await browser.click(button)
                let toast = InboxPage.part(".toast")
                try await browser.wait(
                    for: "a toast says so", "\(toast).textContent === 'That did not work.' && !\(menu)")
                try await browser.click(button)
                try await browser.wait(for: "the menu is open", "\(menu).matches(':popover-open')")
                try await browser.wait(for: "it has its styles", "getComputedStyle(\(menu)).borderRadius === '12px'")
                try await browser.click("\(menu).querySelector('[data-entry=archive]')")
                try await browser.wait(for: "the archive is there", InboxPage.part(".state.emptyArchive"))
            }
        }
    }

    @Test("elements that share an inbox are online again after a sign-out, once each has got its provider again")
    func signedInAgain() async throws {
        try await Stack.withBrowser(startsDispatcher: false) { _, gateway, browser in
            try await browser.open("http://127.0.0.1:\(gateway.port)/")
            try await browser.run(
                """
                window.token = arguments[0];
                window.provider = () => token;
                window.elements = [1, 2].map(() => {
                  const element = document.createElement("carillon-inbox");
                  element.tokenProvider = provider;
                  document.body.append(element);
                  return element;
                });
                """, .string(Stack.token(user: "ada")))
            func both(are state: String) -> String {
                "elements.every((one) => one.shadowRoot.querySelector('.panel').dataset.state === '\(state)')"
            }
            try await browser.wait(for: "both are online", both(are: "online"))
            try await browser.run("window.token = null")
            let service = Stack.token(user: "backend", scope: .service)
            let revoked = try await gateway.call(.post, "/v1/users/ada/revoke-tokens", token: service)
            #expect(revoked.status == 200)
            try await browser.wait(for: "both are signed out", both(are: "signedOut"))
            try await browser.run(
                """
                window.token = arguments[0];
                return (async () => {
                  for (const element of elements) {
                    element.tokenProvider = provider;
                    await new Promise((next) => setTimeout(next));
                  }
                })();
                """, .string(Stack.token(user: "eve")))
            try await browser.wait(for: "both are online again", both(are: "online"))
        }
    }

    @Test("switches have the theme's colours, and in forced colours switches and tabs show their state")
    func switches() async throws {
        try await Stack.withBrowser { _, gateway, browser in
            let page = InboxPage(browser, gateway)
            try await page.open(user: "ada")
            let (on, off) = (InboxPage.part(".type-row input:checked"), InboxPage.part(".card-pause input"))
            try await browser.wait(for: "the settings are there", "\(on) && \(off)")
            try await browser.run(
                """
                \(InboxPage.root).querySelectorAll("details").forEach((one) => { one.open = true; });
                const { style } = document.querySelector("carillon-inbox");
                style.setProperty("--carillon-accent", "#fff");
                style.setProperty("--carillon-on-accent", "#000");
                """)
            func colour(_ element: String, _ part: String = "null") -> String {
                "getComputedStyle(\(element), \(part)).backgroundColor"
            }
            try await browser.wait(for: "the switch is white", "\(colour(on)) === 'rgb(255, 255, 255)'")
            try await browser.wait(for: "its knob is black", "\(colour(on, "'::before'")) === 'rgb(0, 0, 0)'")
            try await browser.forceColors()
            try await browser.wait(for: "switches differ", "\(colour(on)) !== \(colour(off))")
            let tab = { (isPressed: Bool) in InboxPage.part(".filter[aria-pressed=\(isPressed)]") }
            try await browser.wait(for: "tabs differ", "\(colour(tab(true))) !== \(colour(tab(false)))")
        }
    }

    @Test("every icon of the catalog can be drawn, and every language has every text")
    func completeness() async throws {
        let names = Presentation.icons.sorted().map { "'\($0)'" }.joined(separator: ",")
        let missing = try await Stack.runScript(
            """
            return Promise.all([import("/web/icons.js"), import("/web/texts.js")]).then(async ([{ isIcon }, { en }]) => {
              const lost = [\(names)].filter((name) => !isIcon(name));
              const keys = (texts) => Object.entries(texts).map(([key, value]) =>
                `${key}:${typeof value === "object" ? keys(value) : typeof value}`).sort().join();
              for (const name of ["ar", "de", "es", "fr", "ja", "pt"]) {
                const { default: texts } = await import(`/web/texts-${name}.js`);
                if (keys(texts) !== keys(en)) lost.push(name);
              }
              return lost;
            });
            """)
        #expect(missing.strings == [])
    }
}
