// Carillon · OperatorOverviewTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Storage
import Support
import Testing

/// The overview of the operator's page.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled))
struct OperatorOverviewTests {
    private static func outage(_ key: String) -> String { "[data-outage=\"\(key)\"]" }

    private static func waitForTile(_ key: String, _ value: String, _ page: OperatorPage) async throws {
        try await page.browser.wait(
            for: "the tile \(key) is \(value)",
            "\(OperatorPage.part("[data-tile=\"\(key)\"] .tile-value")).textContent === '\(value)'")
    }

    @Test("banners come and go with dispatchers and dead letters, and the tables show processes and latencies")
    func outages() async throws {
        try await Stack.withOperator(startsDispatcher: false) { stack, gateway, page in
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            try await page.wait(Self.outage("no-dispatcher"), shows: "No dispatcher is running.", "Nothing is lost.")
            try await page.wait(Self.outage("no-gateway"), counts: 0)
            try await stack.append([("user", "ada"), ("type", "payment_received"), ("title", "Paid")])
            try await stack.append([("user", "ada"), ("type", "unheard_of")])

            let dispatcher = try await stack.startDispatcher()
            try await page.wait(Self.outage("no-dispatcher"), counts: 0)
            try await eventually("the socket has it") { socket.titles == ["Paid"] }
            try await page.wait(Self.outage("dead-letters"), shows: "1 dead letter waits.")
            try await Self.waitForTile("dead-letters", "1", page)
            try await Self.waitForTile("stored", "1", page)
            try await page.wait("[data-tile=delivered] .tile-note", shows: "1 of 1")
            try await eventually("the socket's latency is measured") {
                let row = try await page.rows("Latency").first ?? []
                return row.first == "Job to frame" && row.last == "1" && row.dropFirst().allSatisfy { $0 != "–" }
            }
            try await eventually("each process is listed once, with version and uptime") {
                let rows = try await page.rows("Processes")
                return rows.map(\.first) == ["gateway", "dispatcher"]
                    && rows.allSatisfy { row in
                        row[2] == "alive" && row[3].first?.isNumber == true && row[4].first?.isNumber == true
                    }
            }
            try await page.click("[data-tile=dead-letters]")
            try await page.waitForLink("#dead-letters")
            try await page.wait(".reason-group", counts: 1)

            try await page.show("overview")
            try await page.wait(Self.outage("dead-letters"), counts: 1)
            _ = try await dispatcher.stop()
            try await page.wait(Self.outage("no-dispatcher"), counts: 1)
            #expect(try await page.complaints() == [])
        }
    }

    /// Reports two dispatchers, which serve FCM; one of them has an open circuit breaker.
    private static func reportDispatchers(_ stack: Stack) async throws {
        let board = Live(stack.connection).providerBoard
        // A report of the future does not age during the test.
        let now = Timestamp(seconds: 4_000_000_000)
        for (dispatcher, breaker) in [("one", ProviderState.Breaker.closed), ("two", .open)] {
            let state = ProviderState(
                provider: .fcm, app: "shop", dispatcher: dispatcher, breaker: breaker,
                until: breaker == .open ? now : nil, inFlight: 2)
            try await board.publish([state], dispatcher: dispatcher, now: now)
        }
    }

    @Test("a provider has one row for its dispatchers, with the worst breaker, and tiles fill their rows")
    func providers() async throws {
        try await Stack.withOperator(startsDispatcher: false) { stack, _, page in
            try await Self.reportDispatchers(stack)
            try await eventually("the row has both") { try await page.rows("Providers").first?[4] == "2" }
            let rows = try await page.rows("Providers")
            #expect(rows.count == 1)
            #expect(rows.first?.prefix(3) == ["FCM", "shop", "openon 1 of 2"])
            #expect(rows.first?[5] == "4", "calls in flight")
            try await page.browser.wait(
                for: "four tiles are in each row",
                """
                [...document.querySelectorAll('.tiles')]
                  .map((tiles) => Map.groupBy([...tiles.children], (tile) => tile.offsetTop))
                  .map((rows) => [...rows.values()].map((row) => row.length).join()).join(' ') === '4 4,4'
                """)
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a dispatcher that lacks an app, or every provider, has a banner")
    func unequal() async throws {
        try await Stack.withOperator(startsDispatcher: false) { stack, _, page in
            try await Self.reportDispatchers(stack)
            try await eventually("the row has both") { try await page.rows("Providers").first?[4] == "2" }
            try await page.wait(Self.outage("unequal-dispatchers"), counts: 0)
            let now = Timestamp(seconds: 4_000_000_000)
            try await Live(stack.connection).providerBoard.publish([], dispatcher: "two", now: now)
            try await page.wait(Self.outage("unequal-dispatchers"), shows: "two lacks FCM for app shop")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("counts that leave out earlier minutes say since when they are, and deny nothing")
    func incomplete() async throws {
        try await Stack.withOperator(startsDispatcher: false) { _, _, page in
            try await page.browser.run(
                """
                const { fetch } = window;
                const since = new Date(Date.now() - 60_000).toISOString();
                const stream = { name: "carillon:{fcm}:deliveries:normal", lane: "normal", provider: "fcm" };
                const changes = {
                  "/v1/admin/statistics": { since, complete: false, channels: [], types_since: since },
                  "/v1/admin/streams": { streams: [
                    { ...stream, length: 1, lag: 0, pending: 1, retries: 0, waited_seconds: 300 },
                  ] },
                };
                window.fetch = async (address, options) => {
                  const answer = await fetch(address, options);
                  const changed = changes[new URL(address).pathname];
                  return changed ? Response.json({ ...await answer.json(), ...changed }) : answer;
                };
                """)
            try await page.wait(".charts", shows: "Too much data to count")
            try await page.wait("[data-tile=sent] .tile-note", shows: "since")
            // One delivery is late only if its provider accepts nothing.
            try await eventually("it waits") { try await page.rows("Streams").first?.last == "5 min" }
            try await page.wait(Self.outage("late-streams"), counts: 0)
            try await page.show("deliveries")
            try await page.wait("[data-note=incomplete]", shows: "Counted from the newest 200,000 notifications, since")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("on a phone the rows of wide tables become cards, which keep the roles of a table")
    func cards() async throws {
        try await Stack.withOperator(startsDispatcher: false, size: (500, 900)) { stack, _, page in
            try await Self.reportDispatchers(stack)
            try await eventually("the row has both") { try await page.rows("Providers").first?[4] == "2" }
            for (view, label) in [("overview", "Median"), ("catalog", "Category")] {
                if view != "overview" { try await page.show(view) }
                try await page.browser.wait(for: "\(view) has cards", OperatorPage.part(".stacks tbody tr"))
                let found = try await page.browser.run(
                    """
                    const isWide = (one) => one.scrollWidth > one.clientWidth;
                    const wide = [document.documentElement, ...document.querySelectorAll('.scroller')].filter(isWide);
                    const { display } = getComputedStyle(document.querySelector('.stacks tbody tr'));
                    const parts = ['table', 'rowgroup', 'row', 'columnheader', 'cell'];
                    const missing = parts.filter((role) => !document.querySelector(`.stacks [role=${role}]`));
                    const label = document.querySelector('.stacks td:nth-child(2)').dataset.label;
                    return [wide.length, display, missing.length, label].join();
                    """)
                #expect(found == .string("0,flex,0,\(label)"), "\(view)")
            }
            #expect(try await page.complaints() == [])
            try await page.show("overview")
            try await eventually("the row is there again") { try await page.rows("Providers").count == 1 }
            #expect(try await page.browser.barriers() == [])
        }
    }

    @Test("on a tablet wide tables fit the window")
    func tablet() async throws {
        try await Stack.withOperator(startsDispatcher: false, size: (768, 1_024)) { stack, _, page in
            try await Self.reportDispatchers(stack)
            try await eventually("the streams are listed") { try await page.rows("Streams").count > 3 }
            let wide = try await page.browser.run(
                """
                return [document.documentElement, ...document.querySelectorAll('.scroller')]
                  .filter((one) => one.scrollWidth > one.clientWidth).length;
                """)
            #expect(wide == .number("0"))
        }
    }

    @Test("work is late by the rules of the alerts: summed by provider, and not for a few of the bulk lane")
    func late() async throws {
        try await Stack.withOperator(startsDispatcher: false) { stack, _, page in
            func append(_ count: Int, to lane: Lane, age: Duration) async throws {
                let moment = (Schedules.now() - age).milliseconds
                for number in 0..<count {
                    try await stack.connection.send(
                        "XADD", .text(Keyspace().deliveries(.fcm, lane)), .text("\(moment)-\(number)"), "x", "1")
                }
            }
            try await stack.query(
                """
                INSERT INTO carillon.delivery_attempts (at, user_id, provider, kind, attempt, outcome)
                VALUES (now(), 'ada', 'fcm', 'push', 1, 'accepted')
                """)
            try await append(1, to: .bulk, age: .seconds(7_200))
            try await append(15, to: .critical, age: .seconds(180))
            try await eventually("the streams are listed") {
                let rows = try await page.rows("Streams")
                return [("bulk", "1"), ("critical", "15")].allSatisfy { lane, length in
                    rows.contains { $0[0].hasSuffix("fcm}:deliveries:\(lane)") && $0[1] == length }
                }
            }
            try await page.browser.wait(
                for: "the accepted push is counted",
                "\(OperatorPage.parts(".tile")).some((tile) => tile.textContent === '1sent, last hour')")
            try await page.wait(Self.outage("late-streams"), counts: 0)

            // Together they are more than the alert lets wait.
            try await append(15, to: .normal, age: .seconds(180))
            try await page.wait(
                Self.outage("late-streams"), shows: "Work is late in 2 streams", "deliveries:critical",
                "deliveries:normal")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("span and organisation narrow the counts, and going back restores them")
    func choices() async throws {
        let notifications = [(user: "ada", title: "one"), (user: "bob", title: "two")]
        try await Stack.withOperator(at: "deliveries", notifications: notifications) { stack, _, page in
            try await stack.notify("cid", "three", [("org", "shop")])
            try await eventually("it is stored") { try await stack.statuses(user: "cid") == ["three": "sent"] }
            try await stack.query(
                "UPDATE carillon.notifications SET status = 'failed', status_reason = 'expired' WHERE title = 'two'")
            try await stack.query("UPDATE carillon.notifications SET opened_at = now() WHERE title = 'three'")
            try await page.show("overview")
            try await Self.waitForTile("stored", "3", page)
            try await Self.waitForTile("failed", "1", page)
            try await page.wait("[data-tile=opened] .tile-note", shows: "1 of 3")

            try await page.click(".overview-form .segments input[value=\"24h\"]")
            try await page.waitForLink("#overview?span=24h")
            try await eventually("the organisations are listed") {
                let rows = try await page.rows("Organisations")
                return rows.map { $0.first ?? "" } == ["without an organisation", "shop"] && rows.last?.last == "1"
            }
            try await page.click("[data-org=shop]")
            try await page.waitForLink("#overview?span=24h&org=shop")
            try await Self.waitForTile("stored", "1", page)
            try await Self.waitForTile("failed", "0", page)
            try await Self.waitForTile("opened", "100%", page)
            try await page.wait("[data-org=shop][aria-current=true]", counts: 1)

            let chosen = """
                [\(OperatorPage.part(".overview-form input:checked")).value,
                  \(OperatorPage.part(".overview-form [name=org]")).value].join()
                """
            try await page.browser.reload()
            try await page.browser.wait(for: "a reload keeps both", "\(chosen) === '24h,shop'")
            try await Self.waitForTile("stored", "1", page)
            try await page.browser.back()
            try await page.waitForLink("#overview?span=24h")
            try await page.browser.wait(for: "the form shows it", "\(chosen) === '24h,'")
            try await Self.waitForTile("stored", "3", page)
            try await page.browser.back()
            try await page.waitForLink("#overview")
            try await page.browser.wait(for: "the form shows it", "\(chosen) === '1h,'")

            try await page.enter("unknown", into: ".overview-form [name=org]")
            try await page.click(".overview-form [type=submit]")
            try await page.waitForLink("#overview?org=unknown")
            try await Self.waitForTile("stored", "0", page)
            #expect(try await page.complaints() == [])
        }
    }
}
