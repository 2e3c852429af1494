// Carillon · OperatorDeadLetterTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// Dead letters on the operator's page: by reason, and edited before they are replayed.
@Suite(.timeLimit(.minutes(10)), .enabled(if: Browser.isInstalled))
struct OperatorDeadLetterTests {
    private static let unknown = "type: is not in the catalog"
    private static let long = "title: is longer than 255 characters"

    private static func group(_ reason: String) -> String { ".reason-group[data-reason=\"\(reason)\"]" }

    @Test("reasons come with the most frequent first, lead to their letters, and are replayed at a rate")
    func reasons() async throws {
        try await Stack.withOperator(startsDispatcher: false) { stack, _, page in
            try await stack.insertLetter(0, reason: Self.long, fields: #"[["user","u0"],["type","invoice_created"]]"#)
            for number in 1...3 {
                let job = #"[["user","u\#(number)"],["type","invoice_created"],["title","Late"]]"#
                try await stack.insertLetter(number, reason: Self.unknown, fields: job)
            }
            try await page.show("dead-letters")
            try await page.wait(".reason-group", counts: 2)
            let order = try await page.browser.run(
                "return \(OperatorPage.parts(".reason-group")).map((group) => group.dataset.reason)")
            #expect(order.strings == [Self.unknown, Self.long])
            try await page.wait(Self.group(Self.unknown), shows: "3 dead letters", "carillon:jobs")
            try await page.wait(Self.group(Self.long), shows: "1 dead letter")

            try await page.click("\(Self.group(Self.unknown)) .reason a")
            try await page.wait(".letter", counts: 3)
            let link = try await page.browser.run("return location.hash")
            #expect(link.string?.hasPrefix("#dead-letters/letters?reason=type") == true, "\(link)")
            try await page.browser.back()
            try await page.wait(".reason-group", counts: 2)

            try await page.click("\(Self.group(Self.unknown)) .replay-all")
            try await page.waitForQuestion(
                "Replay 3 dead letters?", "whose reason begins with “\(Self.unknown)”, from carillon:jobs")
            try await page.enter("1", into: "dialog [name=rate]")
            try await page.agree()
            try await page.wait("#toast", shows: "Replaying 3 dead letters.")
            let spread = try await stack.query(
                "SELECT extract(epoch FROM max(replay_at) - min(replay_at))::int8, count(replay_at) "
                    + "FROM carillon.dead_letters")
            #expect(try spread.first?.int8(0) == 2, "one a second")
            #expect(try spread.first?.int8(1) == 3)
            try await page.wait(Self.group(Self.unknown), shows: "3 cannot be replayed now")
            _ = try await stack.startDispatcher()
            for number in 1...3 {
                try await eventually("u\(number) has it") {
                    try await stack.texts(user: "u\(number)") == [["Late", ""]]
                }
            }
            try await page.wait(".reason-group", counts: 1)

            try await page.click("\(Self.group(Self.long)) .discard-all")
            try await page.waitForQuestion("Discard 1 dead letter?")
            try await page.agree()
            try await page.wait(".reasons", shows: "No dead letters.")
            #expect(try await stack.query("SELECT 1 FROM carillon.dead_letters").isEmpty)
            #expect(try await page.complaints() == [])
        }
    }

    @Test("reasons and letters say when there are more than the page lists")
    func limits() async throws {
        try await Stack.withOperator(startsDispatcher: false) { stack, _, page in
            try await stack.query(
                """
                INSERT INTO carillon.dead_letters (stream, entry, reason, fields, at)
                SELECT 'carillon:jobs', '1795000000000-' || n, 'reason ' || n % 101, '[["user","ada"]]'::jsonb, now()
                FROM generate_series(1, 251) n
                """)
            try await page.show("dead-letters")
            try await page.wait(".reason-group", counts: 100)
            try await page.wait(".reasons", shows: "The 100 most frequent.")
            try await page.show("dead-letters/letters")
            for pages in 1...10 {
                try await page.wait(".letter", counts: 25 * pages)
                guard pages < 10 else { break }
                try await page.wait(".more + p[hidden]", counts: 1)
                try await page.click(".more")
            }
            try await page.wait(".more[hidden] + p:not([hidden])", shows: "The newest 250.")
            #expect(try await page.complaints() == [])
        }
    }

    @Test("an edited letter stays while a field has a fault, which the page shows at the field, and then arrives")
    func edit() async throws {
        try await Stack.withOperator { stack, _, page in
            try await stack.append([
                ("user", "ada"), ("type", "unheard_of"), ("title", "Late"), ("data", #"{"amount":9007199254740993}"#),
                ("carillon:replay", "carillon:jobs/1795000000000-0"),
            ])
            func letters() async throws -> PostgresResult {
                try await stack.query("SELECT replay_at FROM carillon.dead_letters")
            }
            try await eventually("it is a dead letter") { try await letters().count == 1 }
            try await page.show("dead-letters/letters")
            try await page.wait(".letter", shows: Self.unknown)
            try await page.click(".letter .letter-head a")
            try await page.wait(".letter details[open]", shows: "unheard_of")
            func input(_ field: String) -> String { ".letter-form .letter-input[data-field=\(field)] textarea" }
            func fault(_ field: String) -> String {
                OperatorPage.part(".letter-form .letter-input[data-field=\(field)] .field-fault")
            }
            let submit = ".letter-form .primary"
            try await page.click(".letter .edit")
            try await page.wait(".letter-form .letter-input", counts: 4)
            try await page.browser.wait(
                for: "the data is laid out", "\(OperatorPage.part(input("data"))).value.includes('\\n')")

            try await page.enter("{", into: input("data"))
            try await page.click(submit)
            try await page.browser.wait(
                for: "the fault is at the data", "\(fault("data")).textContent.startsWith('is not JSON')")
            try await page.enter(#"{"amount": 9007199254740993}"#, into: input("data"))
            try await page.enter("also_unheard_of", into: input("type"))
            try await page.click(submit)
            try await page.browser.wait(
                for: "the fault is at the type",
                """
                \(fault("type")).textContent === 'is not in the catalog' && \(fault("data")).textContent === ''
                  && \(OperatorPage.part(input("type"))).getAttribute('aria-invalid') === 'true'
                """)
            let kept = try await letters()
            #expect(kept.count == 1)
            #expect(kept.first?.isNull(0) == true)

            try await page.enter("invoice_created", into: input("type"))
            try await page.enter("body", into: ".letter-form [name=new-field]")
            try await page.click(".letter-form .add-field")
            try await page.enter("Better now", into: input("body"))
            try await page.click(submit)
            try await eventually("it arrives") { try await stack.texts(user: "ada") == [["Late", "Better now"]] }
            let data = try await stack.query("SELECT data->>'amount' FROM carillon.notifications")
            #expect(try data.first?.text(0) == "9007199254740993")
            try await page.wait(".letter", counts: 0)
            try await page.wait("#content", shows: "replayed or discarded.")
            #expect(try await letters().isEmpty)
            #expect(try await page.complaints() == [])
        }
    }

    @Test("an edited letter whose broadcast has begun stays, and the page says what to do")
    func begun() async throws {
        try await Stack.withOperator(startsDispatcher: false) { stack, _, page in
            try await stack.insertLetter(
                0, reason: Self.unknown, fields: #"[["all","true"],["type","invoice_created"],["title","All"]]"#)
            try await stack.failBroadcasts()
            try await page.show("dead-letters/letters")
            try await page.wait(".letter", shows: Self.unknown)
            try await page.click(".letter .edit")
            try await page.wait(".letter-form .letter-input", counts: 3)
            try await page.click(".letter-form .primary")
            try await page.wait(".letter-form .fault", shows: "its broadcast has begun", "resume it if it failed")
            let left = try await stack.query("SELECT replay_at FROM carillon.dead_letters")
            #expect(left.count == 1)
            #expect(left.first?.isNull(0) == true)
            #expect(try await page.complaints() == [])
        }
    }
}
