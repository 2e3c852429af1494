// Carillon · OperatorAccessTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// The pages follow the rules of WCAG that axe checks, in the light theme.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled && Accessibility.script != nil))
struct OperatorAccessTests {
    @Test("every view of the operator's page, with its dialogs and faults, breaks no rule of WCAG 2.1 A and AA")
    func views() async throws {
        let notifications = [(user: "ada", title: "one"), (user: "bob", title: "two")]
        try await Stack.withOperator(notifications: notifications) { stack, gateway, page in
            func check(_ view: String) async throws {
                let barriers = try await page.browser.barriers()
                #expect(barriers == [], "\(view)")
            }
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone", name: "Pixel")
            try await gateway.set(#"{"email":"ada@example.com","zone":"Europe/Berlin"}"#, of: "ada")
            try await stack.append([
                ("users", #"["ada","bob"]"#), ("type", "invoice_created"), ("title", "Order 17"), ("id", "order-17"),
                ("org", "shop"),
            ])
            try await stack.append([("all", "true"), ("type", "invoice_created"), ("title", "To all"), ("id", "b1")])
            try await stack.insertLetter(
                0, reason: "type: is not in the catalog",
                fields: #"[["user","ada"],["type","unheard_of"],["data","{\"a\":1}"]]"#)
            try await eventually("all are stored") {
                try await stack.query("SELECT 1 FROM carillon.notifications").count == 6
            }

            try await page.wait("[data-outage=\"dead-letters\"]", counts: 1)
            try await page.wait("[data-org=shop]", counts: 1)
            try await check("overview")

            // Each view with what it shows when it is ready.
            let views = [
                ("people", ".people-search"), ("people/ada", ".notifications tbody tr"),
                ("jobs", ".jobs tbody tr"), ("jobs?status=deferred", ".jobs .empty"),
                ("jobs/unknown", ".job-unknown"), ("jobs/order-17?org=shop", ".notifications tbody tr"),
                ("deliveries", "#content .card"), ("dead-letters", ".reason-group"),
                ("dead-letters/letters", ".letter"), ("broadcasts", ".broadcast .pill"),
                ("broadcasts/new?type=payment_received", ".compose-form option[value=payment_received]"),
                ("trace", ".filters-form"), ("simulate/ada?type=payment_received&title=Hi", ".timeline"),
                ("catalog", ".advice li"), ("catalog/BalanceAlert", ".type-form .field-fault:not(:empty)"),
                ("catalog/payment_received", "[data-channel=push] .sample"),
            ]
            for (view, part) in views {
                try await page.show(view)
                try await page.browser.wait(for: "\(view) is ready", OperatorPage.part(part))
                try await check(view)
            }

            try await page.show("jobs/order-17?org=shop")
            try await page.click(".notifications a[href^=\"#trace/\"]")
            try await page.wait(".timeline", shows: "Stored")
            try await check("trace of a notification")
            try await page.show("jobs/order-17?org=shop")
            try await page.click(".resend-all")
            try await page.waitForQuestion("Resend")
            try await check("dialog")
            try await page.decline()

            try await page.show("dead-letters/letters")
            try await page.click(".letter .edit")
            try await page.click(".letter-form .primary")
            try await page.browser.wait(
                for: "a fault is shown", OperatorPage.part(".letter-form .field-fault:not(:empty)"))
            try await check("letter with a fault")

            try await page.show("broadcasts/new?type=payment_received&title=Hi&body=**There**")
            try await page.wait(".compose-form option[value=payment_received]", counts: 1)
            try await page.click(".compose-form .primary")
            try await page.wait("[data-audience]", counts: 1)
            try await check("preview of a broadcast")
            try await page.click(".send")
            try await page.wait("dialog [name=typed]", counts: 1)
            try await check("confirmation of a broadcast")
        }
    }

    @Test("the inbox, its settings and the sign-in of both pages break no rule of WCAG 2.1 A and AA")
    func inbox() async throws {
        try await Stack.withBrowser { stack, gateway, browser in
            func check(_ what: String) async throws {
                let barriers = try await browser.barriers()
                #expect(barriers == [], "\(what)")
            }
            try await stack.notify("ada", "Hello", [("body", "**Come** and see"), ("url", "https://example.com/")])
            try await stack.notify("ada", "Again")
            let page = InboxPage(browser, gateway)
            try await page.follow(user: "ada")
            try await check("question of a link")
            try await browser.click("document.getElementById('take')")
            try await page.waitUntilOnline()
            try await page.waitForTitles(["Again", "Hello"])
            try await check("inbox")
            try await browser.click("\(InboxPage.item("Hello")).querySelector('[data-part=more]')")
            try await browser.wait(for: "the menu is open", "\(InboxPage.part(".menu")).matches(':popover-open')")
            try await check("menu of a notification")
            try await browser.open("http://127.0.0.1:\(gateway.port)/admin")
            try await browser.wait(for: "the sign-in is there", "document.querySelector('.sign-in')")
            try await check("sign-in")
        }
    }
}
