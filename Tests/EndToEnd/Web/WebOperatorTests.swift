// Carillon · WebOperatorTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

@testable import HTTP

/// The operator page in a real browser.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled))
struct WebOperatorTests {
    @Test("the page shows nodes, streams and the last hour, and a failure links to its trace")
    func survey() async throws {
        try await Stack.withOperator(notifications: [("ada", "Invoice 9")]) { stack, gateway, page in
            let browser = page.browser
            try await browser.wait(
                for: "both programs are alive",
                "['gateway', 'dispatcher'].every((name) => [...document.querySelectorAll('tr')].some((row) => "
                    + "row.textContent.startsWith(name) && row.textContent.includes('alive')))")
            try await browser.wait(
                for: "streams are listed", "document.body.textContent.includes('carillon:jobs:critical')")
            try await browser.wait(
                for: "the last hour is drawn", "document.querySelector('.chart rect.outcome-waiting')")
            #expect(try await browser.run("return location.hash") == .string(""))
            let narrow = try await browser.run(
                """
                const width = (one) => one.getBoundingClientRect().width;
                const view = document.querySelector("main .view");
                return [...view.querySelectorAll(":scope > .card")].map((card) => width(view) - width(card))
                  .concat(document.documentElement.scrollWidth - innerWidth).filter((space) => space > 0).length;
                """)
            #expect(narrow == .number("0"), "cards are as wide as the page, which is no wider than the window")

            let ada = CompatibilityClient(gateway, user: "ada")
            let found = try await ada.get("/v1/notifications").body["notifications"]?.array?.first?["id"]?.string
            let id = try #require(found)
            try await stack.query(
                """
                INSERT INTO carillon.delivery_attempts
                    (at, user_id, notification_id, provider, kind, attempt, outcome, reason)
                VALUES (now(), 'ada', $1::text::uuid, 'fcm', 'push', 1, 'failed', 'UNREGISTERED')
                """, .text(id))
            try await browser.click("document.querySelector('nav a[href=\"#deliveries\"]')")
            let moment = OperatorPage.part("[aria-label=\"Recent failures\"] time")
            try await browser.wait(for: "the failure is listed", moment)
            try await browser.run(
                """
                const { now } = Date;
                Date.now = () => now() + 7_200_000;
                document.dispatchEvent(new Event('visibilitychange'));
                """)
            try await browser.wait(for: "its age is that of now", "\(moment).textContent.startsWith('2')")
            try await browser.run(
                """
                const { fetch } = window;
                window.fetch = async (address, options) => {
                  const answer = await fetch(address, options);
                  if (!String(address).includes("/trace")) return answer;
                  const found = await answer.json();
                  found.steps[0].at = new Date(new Date().setHours(0, 5, 12)).toISOString();
                  return Response.json(found);
                };
                """)
            try await browser.click("document.querySelector('a[href^=\"#trace/\(id)\"]')")
            try await browser.wait(
                for: "the trace is drawn",
                "['Enqueued', 'Stored', 'Push: failed'].every((text) => "
                    + "document.querySelector('.timeline')?.textContent.includes(text))")
            try await page.wait(".timeline", shows: "00:05:12")
            // Channels and providers have names; a provider's reason stays as it is.
            try await page.wait(".card:has(.timeline) > .facts", shows: "In app")
            try await page.wait(".timeline", shows: "FCM", "UNREGISTERED")
            let trace = "document.querySelector('.card:has(.timeline)').textContent"
            #expect(try await browser.run("return /in_app|fcm/.test(\(trace))") == .bool(false))
            #expect(try await page.complaints() == [])
        }
    }

    @Test("failures are filtered by reason and provider, the link keeps the filters, and older ones are shown")
    func failures() async throws {
        try await Stack.withOperator(startsDispatcher: false) { stack, _, page in
            try await stack.query(
                """
                INSERT INTO carillon.delivery_attempts (at, user_id, provider, kind, attempt, outcome, reason)
                SELECT now(), 'u' || n, CASE WHEN n = 1 THEN 'apns' ELSE 'fcm' END, 'push', 1, 'failed',
                    CASE WHEN n = 1 THEN 'BadDeviceToken' ELSE 'UNREGISTERED' END
                FROM generate_series(1, 51) n
                """)
            try await page.show("deliveries")
            let rows = "[aria-label=\"Recent failures\"] tbody tr"
            try await page.wait(rows, counts: 50)
            try await page.click(".failures + .row .more")
            try await page.wait(rows, counts: 51)
            try await page.wait(".failures + .row .more[hidden]", counts: 1)
            try await page.choose("apns", of: ".filters-form [name=provider]")
            try await page.waitForLink("#deliveries?provider=apns")
            try await page.wait(rows, counts: 1)
            try await page.browser.reload()
            try await page.wait(rows, counts: 1)
            try await page.wait(rows, shows: "APNs", "BadDeviceToken", "u1")
            try await page.enter("UNREG", into: ".filters-form [name=reason]")
            try await page.click(".filters-form [type=submit]")
            try await page.waitForLink("#deliveries?reason=UNREG&provider=apns")
            try await page.wait(".failures", shows: "No failure matches the filters.")
            let complaints = try await page.complaints()
            #expect(complaints == [])
        }
    }

    @Test("a banner shows an unavailable provider and what waits; only sent pushes count as sent")
    func outage() async throws {
        try await Stack.withOperator { stack, gateway, page in
            let browser = page.browser
            try await browser.wait(for: "the tiles are there", "document.querySelector('.tile')")
            func tile(_ label: String) -> String {
                "[...document.querySelectorAll('.tile')].find((tile) => tile.textContent.endsWith('\(label)'))"
                    + "?.querySelector('.tile-value').textContent"
            }
            try await gateway.register(user: "good", platform: "android", token: "good-phone")
            try await stack.append([("user", "good"), ("type", "payment_received"), ("title", "good")])
            try await eventually("one is sent") { stack.pushed() == ["good-phone": ["good"]] }
            for number in 0..<14 {
                let phone = "internal-\(number)"
                try await gateway.register(user: phone, platform: "android", token: phone)
                try await stack.append([("user", phone), ("type", "payment_received"), ("title", phone)])
            }
            try await browser.wait(
                for: "the banner says what waits",
                "/FCM is unavailable for app default\\. 14 deliveries wait, the oldest for \\d+ s\\./"
                    + ".test(document.querySelector('.banner[data-provider=fcm]')?.textContent)")
            try await browser.wait(for: "the tile counts them", "\(tile("deliveries waiting")) === '14'")
            try await browser.wait(
                for: "all are stored, and one is sent",
                "document.querySelector('.chart rect.outcome-waiting') && \(tile("sent, last hour")) === '1'")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a user is found by address, with devices, settings and notifications that a filter narrows")
    func people() async throws {
        let notifications = [(user: "ada", title: "one"), (user: "ada", title: "two")]
        try await Stack.withOperator(at: "people", notifications: notifications) { stack, gateway, page in
            let browser = page.browser
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone", name: "Pixel")
            try await gateway.set(#"{"email":"ada@example.com","zone":"Europe/Berlin"}"#, of: "ada")
            try await eventually("both are in the inbox") {
                try await stack.statuses(user: "ada") == ["one": "sent", "two": "sent"]
            }
            try await stack.query("UPDATE carillon.notifications SET status = 'failed' WHERE title = 'one'")
            try await browser.type("ADA@example.com", into: "document.querySelector('.people-search input')")
            try await browser.click("document.querySelector('.people-search button')")
            try await browser.wait(for: "she is found", "document.querySelector('.person[data-user=ada]')")
            try await browser.wait(for: "the link names her", "location.hash === '#people/ada'")
            for words in ["ada@example.com", "Pixel", "Europe/Berlin"] {
                try await browser.wait(
                    for: "\(words) is shown", "document.querySelector('.person').textContent.includes('\(words)')")
            }
            let rows = "[...document.querySelectorAll('.notifications tbody tr')]"
            try await browser.wait(for: "both are listed", "\(rows).length === 2")
            // A link with a filter can be shared.
            try await browser.run("location.hash = 'people/ada?status=failed'")
            try await browser.wait(
                for: "one is listed", "\(rows).length === 1 && \(rows)[0].textContent.includes('one')")
            try await browser.run("location.hash = 'people/nobody'")
            try await browser.wait(
                for: "it says so", "document.querySelector('.people-said').textContent.includes('no user nobody')")
            // This address is not encoded.
            try await page.show("people/50%")
            try await page.wait(".people-said", shows: "There is no user 50%.")
            try await stack.query(
                """
                WITH many AS (
                    INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, 21) n RETURNING user_id
                )
                INSERT INTO carillon.user_settings (user_id, email) SELECT user_id, 'all@example.com' FROM many
                """)
            try await page.show("people?q=all@example.com")
            try await page.wait(".people-said", shows: "At least 20 users match.")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a user's notifications can be filtered by a disabled type too")
    func disabledType() async throws {
        try await Stack.withOperator(
            at: "people/ada", notifications: [(user: "ada", title: "one")],
            catalog: "types: {invoice_created: {}, old_news: {enabled: false}}"
        ) { _, _, page in
            try await page.choose("old_news", of: ".history [name=type]")
            try await page.waitForLink("#people/ada?type=old_news")
            try await page.wait(".notifications", shows: "No notification matches the filters.")
        }
    }

    @Test("a user is shown while the types to filter by, and the counts of the catalog, are not known")
    func slowTypes() async throws {
        try await Stack.withOperator(at: "people", notifications: [(user: "ada", title: "one")]) { _, _, page in
            try await page.browser.run(
                """
                const { fetch } = window;
                const slow = ["/v1/types", "/v1/admin/catalog"];
                window.fetch = (address, options) =>
                  slow.includes(new URL(address, location).pathname) ? new Promise(() => {}) : fetch(address, options);
                """)
            try await page.show("people/ada")
            try await page.wait(".person[data-user=ada]", counts: 1)
            try await page.wait(".person-head", shows: "User since")
        }
    }

    @Test("a job is simulated, and its faults are named")
    func simulate() async throws {
        try await Stack.withOperator(at: "simulate") { stack, _, page in
            let browser = page.browser
            try await browser.wait(
                for: "the types are there", "document.querySelector('[name=type]')?.options.length > 5")
            try await browser.type("ada", into: "document.querySelector('[name=user]')")
            try await browser.run("document.querySelector('[name=type]').value = 'payment_received'")
            try await browser.type(#"{"colour": 1}"#, into: "document.querySelector('[name=more]')")
            try await browser.click("document.querySelector('.simulate-form .primary')")
            try await browser.wait(
                for: "the fault is named",
                "document.querySelector('.simulate-form .fault').textContent.includes('job.colour')")
            try await browser.run("document.querySelector('[name=more]').value = ''")
            try await browser.click("document.querySelector('.simulate-form .primary')")
            try await browser.wait(
                for: "the steps are there", "document.querySelector('.timeline')?.textContent.includes('Store')")
            try await page.wait("[aria-label=Channels]", shows: "it waits in the inbox")
            #expect(try await stack.texts(user: "ada").isEmpty)
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a dead letter is replayed")
    func deadLetter() async throws {
        try await Stack.withOperator { stack, _, page in
            let browser = page.browser
            try await stack.insertLetter(
                0, reason: "type: is not in the catalog",
                fields: #"[["user","ada"],["type","invoice_created"],["title","Late"]]"#)
            try await page.show("dead-letters/letters")
            try await browser.wait(
                for: "the letter is shown",
                "document.querySelector('.letter')?.textContent.includes('not in the catalog')")
            try await browser.click("document.querySelector('.letter .replay')")
            try await eventually("it is stored") { try await stack.texts(user: "ada").map(\.first) == ["Late"] }
            try await browser.wait(for: "the dead letter is gone", "!document.querySelector('.letter')")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("bulk actions apply to the listed dead letters and ask with their number first")
    func deadLetters() async throws {
        try await Stack.withOperator(startsDispatcher: false) { stack, _, page in
            let browser = page.browser
            for (number, reason) in [
                "type: is not in the catalog", "type: is missing", "title: is too long", "user: is missing",
            ]
            .enumerated() {
                try await stack.insertLetter(number, reason: reason, fields: #"[["user","ada"]]"#)
            }
            func left() async throws -> [String] {
                try await stack.query("SELECT reason FROM carillon.dead_letters ORDER BY reason").map { try $0.text(0) }
            }
            func button(_ text: String) -> String {
                "[...document.querySelectorAll('.filters-form button')].find((b) => b.textContent === '\(text)')"
            }
            try await page.show("dead-letters/letters")
            // The browser's clock is behind.
            try await browser.run(
                """
                window.Date = class extends Date {
                  constructor(...parts) { super(...(parts.length ? parts : [Date.now()])); }
                  static now() { return super.now() - 3_600_000; }
                };
                """)
            try await browser.wait(for: "all are listed", "document.querySelectorAll('.letter').length === 4")
            // Typed text does not filter until the form is sent.
            try await browser.type("type", into: "document.querySelector('[name=reason]')")
            try await browser.click(button("Discard these"))
            try await page.waitForQuestion("Discard 4 dead letters?")
            try await page.decline()
            try await browser.click(button("Filter"))
            try await browser.wait(for: "two are listed", "document.querySelectorAll('.letter').length === 2")
            try await browser.click(button("Replay these"))
            try await page.waitForQuestion("2 dead letters whose reason begins with “type” return to their streams")
            try await page.decline()
            #expect(try await left().count == 4)
            try await browser.click(button("Discard these"))
            try await page.waitForQuestion("Discard 2 dead letters?")
            try await page.agree()
            try await eventually("only those are gone") {
                try await left() == ["title: is too long", "user: is missing"]
            }
            try await browser.wait(for: "none is listed", "!document.querySelector('.letter')")

            // Without a dispatcher they only get a time.
            func replaying() async throws -> [String] {
                try await stack.query("SELECT reason FROM carillon.dead_letters WHERE replay_at IS NOT NULL")
                    .map { try $0.text(0) }
            }
            try await browser.run("document.querySelector('[name=reason]').value = ''")
            try await browser.type("title", into: "document.querySelector('[name=reason]')")
            try await browser.click(button("Filter"))
            try await browser.wait(for: "one is listed", "document.querySelectorAll('.letter').length === 1")
            try await browser.click(button("Replay these"))
            try await page.waitForQuestion("1 dead letter whose reason begins with “title” returns to its stream")
            try await page.agree()
            try await eventually("it is replayed") { try await !replaying().isEmpty }
            #expect(try await replaying() == ["title: is too long"])
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a broadcast is confirmed, paused, resumed and cancelled, and only operators get in")
    func broadcast() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let settings = ["BROADCAST_CONFIRM_ABOVE": "5"]
            let dispatcher = try await stack.startDispatcher(environment: settings)
            try await stack.query(
                "INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, 40) n")
            let service = Stack.token(user: "backend", scope: .service)
            let job = #"{"all":true,"type":"invoice_created","title":"To all","id":"b1","org":"ops"}"#
            #expect(try await gateway.call(.post, "/v1/jobs", token: service, json: job).status == 202)
            func state() async throws -> String? {
                try await gateway.call(.get, "/v1/jobs/b1?org=ops", token: service).body["broadcast"]?["state"]?.string
            }
            try await eventually("it waits for its confirmation") { try await state() == "awaiting_confirmation" }
            // Without a dispatcher each state lasts until the next command.
            try await dispatcher.stop()
            try await Browser.with(in: stack.directory.path, http: stack.http) { browser in
                let card = "document.querySelector('[data-job=b1]')?.textContent"
                let order = { (name: String) in "document.querySelector('[data-job=b1] [data-order=\(name)]')" }
                let page = OperatorPage(browser, gateway)
                try await page.open("broadcasts")
                try await browser.wait(
                    for: "the page shows the broadcast", "/Invoice created.*b1/.test(\(card)) && /To all/.test(\(card))"
                )
                let questions = ["confirm": "Send it to 40 users", "resume": "Resume this broadcast"]
                for (name, reached) in [("confirm", "expanding"), ("pause", "paused"), ("resume", "expanding")] {
                    let before = try await state()
                    try await browser.click(order(name))
                    if let question = questions[name] {
                        try await browser.wait(
                            for: "the dialog names what is sent",
                            "/\(question).*Invoice created to everyone: “To all”/"
                                + ".test(document.querySelector('dialog')?.textContent)")
                        try await page.decline()
                        let declined = try await state()
                        #expect(declined == before)
                        try await browser.click(order(name))
                        try await page.agree()
                    }
                    try await eventually("it is \(reached)") { try await state() == reached }
                }
                try await browser.click(order("cancel"))
                try await browser.click("document.querySelector('dialog button[value=yes]')")
                try await eventually("it ends") { try await state() == "cancelling" }
                _ = try await stack.startDispatcher(name: "dispatcher-again", environment: settings)
                try await eventually("it is cancelled") { try await state() == "cancelled" }
                try await browser.wait(
                    for: "the page shows it",
                    "document.querySelector('[data-job=b1] .pill').textContent === 'cancelled'"
                )
                #expect(try await page.complaints() == [])

                let user = Stack.token(user: "ada")
                try await browser.open("http://127.0.0.1:\(gateway.port)/#")
                try await browser.run("sessionStorage.clear()")
                try await page.follow(token: user)
                try await browser.wait(
                    for: "it is refused", "document.querySelector('.sign-in .fault')?.textContent.includes('admin')")
            }
        }
    }
}
