// Carillon · OperatorJobTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// Jobs on the operator's page, and notifications that an operator sends again.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled))
struct OperatorJobTests {
    private static let filter = ".filters-form:not(.job-search)"

    /// Sends the job `order-17` to three users; those of Bob and Cid have failed afterwards.
    ///
    /// - Returns: its entry.
    @discardableResult
    private static func sendOrder(_ stack: Stack) async throws -> String {
        let entry = try await stack.append([
            ("users", #"["ada","bob","cid"]"#), ("type", "invoice_created"), ("title", "Order 17"), ("id", "order-17"),
        ])
        try await eventually("it is in all inboxes") {
            try await stack.query("SELECT 1 FROM carillon.notifications WHERE status = 'sent'").count == 3
        }
        try await stack.query("UPDATE carillon.notifications SET status = 'failed' WHERE user_id IN ('bob', 'cid')")
        return entry
    }

    /// The users of the jobs with which an operator sent something again.
    private static func resentTo(_ stack: Stack) async throws -> [String] {
        try await stack.query(
            "SELECT user_id FROM carillon.notifications WHERE job_id LIKE 'resend:%' ORDER BY user_id"
        )
        .map { try $0.text(0) }
    }

    @Test("recent jobs show their statuses, the link keeps the filter, and a job is found by id and organisation")
    func list() async throws {
        try await Stack.withOperator { stack, _, page in
            try await Self.sendOrder(stack)
            try await stack.notify("dora", "Order 18", [("id", "order-18"), ("org", "shop")])
            try await eventually("the other job is stored") { try await stack.texts(user: "dora").count == 1 }
            try await page.show("jobs")
            let row = "\(OperatorPage.parts(".jobs tbody tr")).find((row) => row.textContent.includes('order-17'))"
            try await page.browser.wait(
                for: "the job is listed with both statuses",
                """
                ['Order 17', '1 sent', '2 failed'].every((text) => \(row).textContent.includes(text))
                  && \(row).cells[2].textContent === '3'
                """)
            try await page.wait(".jobs tbody tr", counts: 2)
            try await page.browser.wait(
                for: "the types of the catalog are offered",
                "\(OperatorPage.part("\(Self.filter) [name=type]")).list.querySelector('[value=invoice_created]')")

            try await page.choose("failed", of: "\(Self.filter) [name=status]")
            try await page.waitForLink("#jobs?status=failed")
            try await page.wait(".jobs tbody tr", counts: 1)
            try await page.browser.reload()
            try await page.browser.wait(
                for: "the list is still filtered",
                "\(row).textContent.includes('2 failed') && !\(row).textContent.includes('sent')")
            try await page.wait(".jobs tbody tr", counts: 1)
            let kept = try await page.browser.run(
                "return \(OperatorPage.part("\(Self.filter) [name=status]")).value")
            #expect(kept == .string("failed"))

            try await page.enter("order-18", into: ".job-search [name=id]")
            try await page.click(".job-search .primary")
            try await page.wait(".job-unknown", shows: "Nothing of this job is stored")
            try await page.enter("shop", into: ".job-search [name=org]")
            try await page.click(".job-search .primary")
            try await page.waitForLink("#jobs/order-18?org=shop")
            try await page.wait(".notifications tbody", shows: "dora", "Order 18")
            try await page.wait(".job-head", shows: "shop", "Invoice created")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a job shows its notifications, sends those that failed again, and is cancelled")
    func job() async throws {
        try await Stack.withOperator { stack, _, page in
            try await Self.sendOrder(stack)
            try await page.show("jobs/order-17")
            try await page.wait(".job[data-job=\"order-17\"]", counts: 1)
            try await eventually("the counts are shown") {
                let rows = try await page.rows("Notifications by status")
                return Set(rows.map { $0.prefix(2).joined(separator: " ") }) == ["sent 1", "failed 2"]
            }
            try await page.wait(".notifications tbody tr", counts: 3)
            for user in ["ada", "bob", "cid"] {
                try await page.wait(".notifications a[href=\"#people/\(user)\"]", counts: 1)
                try await page.wait(".notifications a[href^=\"#trace/\"][href$=\"/\(user)\"]", counts: 1)
            }
            try await page.choose("failed", of: ".history [name=status]")
            try await page.waitForLink("#jobs/order-17?status=failed")
            try await page.wait(".notifications tbody tr", counts: 2)

            try await page.click(".resend-all[data-status=failed]")
            try await page.waitForQuestion("Resend 2 notifications?", "“failed”")
            try await page.decline()
            #expect(try await Self.resentTo(stack) == [])
            try await page.click(".resend-all[data-status=failed]")
            try await page.waitForQuestion("Resend 2 notifications?")
            try await page.agree()
            try await page.wait(".resent-all[role=status]", shows: "2 notifications sent again.")
            try await eventually("both get it again") { try await Self.resentTo(stack) == ["bob", "cid"] }
            #expect(try await stack.texts(user: "bob") == [["Order 17", ""], ["Order 17", ""]])
            #expect(try await stack.texts(user: "ada") == [["Order 17", ""]])

            try await page.click(".cancel")
            try await page.waitForQuestion("Cancel this job?")
            try await page.agree()
            try await page.wait(".job .answer", shows: "The job is cancelled.")
            try await page.wait(".job-head .pill", shows: "cancelled")
            try await page.wait(".cancel[hidden]", counts: 1)
            #expect(try await stack.statuses(user: "ada") == ["Order 17": "cancelled"])
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a job that everyone had before it was cancelled stays complete")
    func cancelledTooLate() async throws {
        try await Stack.withOperator { stack, _, page in
            try await Self.sendOrder(stack)
            try await stack.query("UPDATE carillon.notifications SET status = 'delivered', read_at = now()")
            try await page.show("jobs/order-17")
            try await page.click(".cancel")
            try await page.waitForQuestion("Cancel this job?")
            try await page.agree()
            try await page.wait(".job .answer", shows: "Too late")
            try await page.wait(".job-head .facts", shows: "Cancelled")
            try await page.wait(".job-head .pill", shows: "complete")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("the few matches in a large job are found behind pages without any, and stay")
    func rareMatches() async throws {
        try await Stack.withOperator { stack, _, page in
            try await Self.sendOrder(stack)
            try await page.show("jobs/order-17")
            try await page.wait(".notifications tbody tr", counts: 3)
            try await page.browser.run(
                """
                const { fetch } = window;
                window.fetch = async (address, options) => {
                  const { pathname, searchParams: query } = new URL(address, location);
                  if (!pathname.endsWith("/notifications") || !query.has("status")) return fetch(address, options);
                  const cursor = query.get("cursor");
                  const next = cursor === null ? "aaa" : cursor === "aaa" ? "aab" : null;
                  return next ? Response.json({ notifications: [], next_cursor: next }) : fetch(address, options);
                };
                """)
            try await page.choose("failed", of: ".history [name=status]")
            try await page.wait(".notifications", shows: "No notification so far matches the filters.")
            try await page.click(".history .more")
            try await page.wait(".notifications tbody tr", counts: 2)
            try await page.wait(".history .more[hidden]", counts: 1)
            // The view shows new counts once its first page is loaded again.
            try await stack.query("UPDATE carillon.notifications SET status = 'expired' WHERE user_id = 'ada'")
            try await page.browser.run("document.dispatchEvent(new Event('visibilitychange'))")
            try await page.wait(".job-numbers", shows: "expired")
            try await page.wait(".notifications tbody tr", counts: 2)
            try await page.wait(".history .more[hidden]", counts: 1)
            #expect(try await page.complaints() == [])
        }
    }

    @Test("rows that no longer match the filter leave the list, even behind the first page")
    func shrinking() async throws {
        try await Stack.withOperator { stack, _, page in
            try await Self.sendOrder(stack)
            try await stack.query(
                """
                INSERT INTO carillon.notifications (user_id, id, version, job_entry, org_id, job_id, type, severity,
                    delivery, lane, channels, title, body, status, created_at)
                SELECT 'u' || number, gen_random_uuid(), 0, n.job_entry, n.org_id, n.job_id, n.type, n.severity,
                    n.delivery, n.lane, n.channels, n.title, n.body, 'failed', n.created_at
                FROM carillon.notifications n, generate_series(1, 30) number WHERE n.user_id = 'ada'
                """)
            try await page.show("jobs/order-17")
            try await page.choose("failed", of: ".history [name=status]")
            try await page.wait(".notifications tbody tr", counts: 25)
            try await page.click(".history .more")
            try await page.wait(".notifications tbody tr", counts: 32)
            try await stack.query("UPDATE carillon.notifications SET status = 'expired' WHERE user_id LIKE 'u%'")
            try await page.browser.run("document.dispatchEvent(new Event('visibilitychange'))")
            try await page.wait(".notifications tbody tr", counts: 2)
            try await page.wait(".history .more[hidden]", counts: 1)
            #expect(try await page.complaints() == [])
        }
    }

    /// Keeps the answers of "Resend all" from the page until `window.release()`.
    private static let hold = """
        const { fetch } = window;
        window.keys = [];
        window.fetch = async (address, options) => {
          const answer = await fetch(address, options);
          if (!String(address).endsWith("/resend")) return answer;
          // The page's time limit ends a body that is read later.
          const text = await answer.text();
          window.keys.push(JSON.parse(options.body).key);
          await new Promise((done) => { window.release = done; });
          return new Response(text, answer);
        };
        """
    private static let button = ".resend-all[data-status=failed]"
    private static let outcome = ".resent-all[role=status]"

    /// Sends those that failed again, without the answer, and returns the key of the call.
    private static func holdResend(_ page: OperatorPage) async throws -> JSONValue {
        try await page.browser.run(Self.hold)
        try await page.click(Self.button)
        try await page.waitForQuestion("Resend 2 notifications?")
        try await page.agree()
        try await page.browser.wait(for: "a call is made", "window.keys.length === 1")
        return try await page.browser.run("return window.keys[0]")
    }

    @Test("a job that is being resent is not resent twice after a change of view or a reload")
    func interruptedResend() async throws {
        try await Stack.withOperator { stack, _, page in
            try await Self.sendOrder(stack)
            try await page.show("jobs/order-17")
            let key = try await Self.holdResend(page)

            try await page.show("jobs/order-17?status=failed")
            try await page.wait(Self.outcome, shows: "0 notifications sent again so far.")
            try await page.click(Self.button)
            try await page.wait("dialog", counts: 0)

            try await page.browser.reload()
            try await page.wait(Self.outcome, shows: "0 notifications with the status “failed” sent again so far.")
            let again = try await Self.holdResend(page)
            #expect(again == key)
            try await page.browser.run("window.release()")
            try await page.wait(Self.outcome, shows: "2 notifications sent again.")
            try await eventually("both get it again") { try await Self.resentTo(stack) == ["bob", "cid"] }

            // A later run is a new one.
            try await page.click(Self.button)
            try await page.waitForQuestion("Resend 2 notifications?")
            try await page.agree()
            try await page.browser.wait(
                for: "the next key differs", "window.keys.length === 2 && window.keys[1] !== window.keys[0]")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a run that stopped goes on with those that are left, which the refused are not")
    func stoppedResend() async throws {
        try await Stack.withOperator { stack, _, page in
            try await Self.sendOrder(stack)
            try await page.show("jobs/order-17")
            try await page.browser.run(
                """
                const { fetch } = window;
                window.fetch = async (address, options) => {
                  if (!String(address).endsWith("/resend")) return fetch(address, options);
                  if (JSON.parse(options.body).cursor) throw new TypeError("the connection was lost");
                  return Response.json({ count: 0, refused: 1, next_cursor: "bob" }, { status: 202 });
                };
                """)
            try await page.click(Self.button)
            try await page.waitForQuestion("Resend 2 notifications?")
            try await page.agree()
            try await page.wait(Self.outcome, shows: "then it stopped")
            try await page.click(Self.button)
            try await page.waitForQuestion("Resend 1 notification?")
            try await page.decline()
            try await page.browser.reload()
            try await page.wait(Self.outcome, shows: "1 notification cannot be")
        }
    }

    @Test("a job that one tab resends is not resent twice by another tab that shows it")
    func sharedResend() async throws {
        try await Stack.withOperator { stack, _, page in
            try await Self.sendOrder(stack)
            try await page.show("jobs/order-17")
            try await page.wait(Self.button, counts: 1)
            let first = try await page.browser.tab()
            let second = try await page.browser.openTab()
            try await page.open("jobs/order-17")
            // The browser may count a tab that a test has opened as hidden.
            try await page.browser.run(
                """
                Object.defineProperty(document, 'visibilityState', { value: 'visible' });
                document.dispatchEvent(new Event('visibilitychange'));
                """)
            let key = try await Self.holdResend(page)

            try await page.browser.show(first)
            try await page.wait(Self.outcome, shows: "0 notifications with the status “failed” sent again so far.")
            let again = try await Self.holdResend(page)
            #expect(again == key)
            try await page.browser.run("window.release()")
            try await page.wait(Self.outcome, shows: "2 notifications sent again.")

            try await page.browser.show(second)
            try await page.browser.wait(
                for: "nothing is left to send", "\(OperatorPage.part(Self.outcome)).textContent === ''")
            try await page.browser.run("window.release()")
            try await page.wait(Self.outcome, shows: "2 notifications sent again.")
            try await eventually("both get it again") { try await Self.resentTo(stack) == ["bob", "cid"] }
            #expect(try await page.browser.run("return localStorage.length") == .number("0"))
            #expect(try await page.complaints() == [])
        }
    }

    @Test("a job that is opened by its entry goes to the address that the list links, and knows its resend there")
    func oneAddress() async throws {
        try await Stack.withOperator { stack, _, page in
            let entry = try await Self.sendOrder(stack)
            // No notification has this status.
            try await page.show("jobs/\(entry)?status=deferred")
            try await page.waitForLink("#jobs/order-17?status=deferred")
            try await page.wait(".job-head", shows: "Invoice created", "Order 17")
            _ = try await Self.holdResend(page)

            try await page.show("jobs")
            try await page.show("jobs/\(entry)")
            try await page.waitForLink("#jobs/order-17")
            try await page.wait(Self.outcome, shows: "0 notifications sent again so far.")
            try await page.browser.run("window.release()")
            try await page.wait(Self.outcome, shows: "2 notifications sent again.")
            try await eventually("both get it again") { try await Self.resentTo(stack) == ["bob", "cid"] }
            let kept = try await page.browser.run("return localStorage.length")
            #expect(kept == .number("0"))

            // Without an id of its own it goes to stream and entry.
            let other = try await stack.append([("user", "dora"), ("type", "invoice_created"), ("title", "Order 18")])
            try await eventually("the other job is stored") { try await stack.texts(user: "dora").count == 1 }
            try await page.show("jobs/\(other)")
            try await page.waitForLink("#jobs/carillon%3Ajobs%2F\(other)")
            try await page.wait(".job-head", shows: "Order 18")
            let complaints = try await page.complaints()
            #expect(complaints == [])
        }
    }

    @Test("signing out ends a resend without a fault in the form, and the job knows later that it did not end")
    func signedOutResend() async throws {
        try await Stack.withOperator { stack, _, page in
            try await Self.sendOrder(stack)
            try await page.show("jobs/order-17")
            try await page.browser.run(
                """
                const { fetch } = window;
                window.fetch = async (address, options) => {
                  if (!String(address).endsWith("/resend")) return fetch(address, options);
                  sessionStorage.calls = Number(sessionStorage.calls ?? 0) + 1;
                  await new Promise((done) => { window.release = done; });
                  return Response.json({ count: 1, refused: 0, next_cursor: "bob" }, { status: 202 });
                };
                """)
            try await page.click(Self.button)
            try await page.waitForQuestion("Resend 2 notifications?")
            try await page.agree()
            try await page.browser.wait(for: "a call is made", "sessionStorage.calls === '1'")

            try await page.click("#leave")
            try await page.wait(".sign-in .fault", counts: 1)
            // Does nothing if the page is a new one.
            try await page.browser.run("window.release?.()")
            let fault = try await page.browser.run("return document.querySelector('.sign-in .fault').textContent")
            #expect(fault == .string(""))

            try await page.open("jobs/order-17")
            try await page.wait(Self.outcome, shows: "0 notifications with the status “failed” sent again so far.")
            let calls = try await page.browser.run("return sessionStorage.calls")
            #expect(calls == .string("1"))
            let complaints = try await page.complaints()
            #expect(complaints == [])
        }
    }

    @Test("a notification is sent again once by two clicks if the answer to the first is lost")
    func lostAnswer() async throws {
        try await Stack.withOperator(at: "people/ada", notifications: [("ada", "Hello")]) { stack, _, page in
            try await page.browser.run(
                """
                const { fetch } = window;
                window.fetch = async (address, options) => {
                  const answer = await fetch(address, options);
                  if (!String(address).includes("/resend?")) return answer;
                  window.fetch = fetch;
                  throw new TypeError("the connection was lost");
                };
                """)
            try await page.wait(".notifications .resend", counts: 1)
            let id = try await page.browser.run("return document.querySelector('.notifications .resend').dataset.id")
            // The notification of the new job has a row of its own.
            let shown = try #require(id.string)
            let button = ".resend[data-id=\"\(shown)\"]"
            let answer = ":has(> .actions > \(button)) > .resent"
            try await page.click(button)
            try await page.waitForQuestion("Send it again?")
            try await page.agree()
            try await page.wait(answer, shows: "the connection was lost")
            try await page.click(button)
            try await page.waitForQuestion("Send it again?")
            try await page.agree()
            try await page.wait(answer, shows: "Sent again")
            let link = try await page.browser.run("return document.querySelector('\(answer) a').textContent")
            let job = try #require(link.string)
            try await eventually("it is stored") { try await Self.resentTo(stack) == ["ada"] }
            let stored = try await stack.query(
                "SELECT job_id FROM carillon.notifications WHERE job_id LIKE 'resend:%'"
            )
            .map { try $0.text(0) }
            #expect(stored == [job])
        }
    }

    @Test("a notification is sent again from a user's page, and a trace finds a job by its id")
    func resend() async throws {
        try await Stack.withOperator(at: "people/ada", notifications: [("ada", "Hello")]) { stack, _, page in
            try await page.click(".notifications .resend")
            try await page.waitForQuestion("Send it again?", "ada gets “Hello” again")
            try await page.agree()
            try await page.click(".resent a")
            try await page.wait(".job[data-job^=\"resend:\"]", counts: 1)
            try await page.wait(".notifications tbody", shows: "ada", "Hello")
            #expect(try await stack.texts(user: "ada") == [["Hello", ""], ["Hello", ""]])
            #expect(try await Self.resentTo(stack) == ["ada"])
            // Each notification of hers leads to its job.
            try await page.show("people/ada")
            try await page.wait(".notifications tbody tr", counts: 2)
            try await page.wait(".notifications a[href^=\"#jobs/resend\"]", counts: 1)

            try await stack.notify("bob", "Order 17", [("id", "order-17")])
            try await eventually("the job is stored") { try await stack.texts(user: "bob").count == 1 }
            try await page.show("trace")
            try await page.enter("order-17", into: ".filters-form [name=id]")
            try await page.click(".filters-form .primary")
            try await page.waitForLink("#jobs/order-17")
            try await page.click(".notifications a[href^=\"#trace/\"]")
            try await page.wait(".timeline", shows: "Enqueued", "Stored")
            try await page.wait(".facts a[href^=\"#jobs/\"]", counts: 1)
            // A repeated search that fails says so.
            try await page.browser.run(
                """
                const { fetch } = window;
                window.restore = () => { window.fetch = fetch; };
                window.fetch = async () => { throw new TypeError("the connection was lost"); };
                """)
            try await page.click(".filters-form .primary")
            try await page.wait("#state", shows: "Cannot reach the gateway")
            try await page.browser.run("window.restore()")
            try await page.click(".facts a[href=\"#jobs/order-17\"]")
            try await page.wait(".job[data-job=\"order-17\"]", counts: 1)
            #expect(try await page.complaints() == [])
        }
    }
}
