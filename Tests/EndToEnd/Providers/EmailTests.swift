// Carillon · EmailTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Sandbox
import Support
import Testing

@testable import Clients
@testable import HTTP

/// E-mail from the job to the relay.
@Suite(.timeLimit(.minutes(10)))
struct EmailTests {
    private static let catalog = """
        types:
          receipt: {channels: [email]}
          news: {channels: [in_app, email]}
          paid:
            title: {en: Payments, de: Zahlungen}
            delivery: push
            channels: [in_app, push, email]
            templates:
              en:
                title: "{{amount}} from {{name}}"
                body: "Invoice {{number}}"
                email_subject: "You got {{amount}}"
                email_html: "<p>From {{name}}</p>"
          reminder: {channels: [in_app, email], email_after: 1h}
          security: {channels: [in_app, email], required: true}
        """

    private static func with(
        sandbox configuration: SandboxConfiguration = SandboxConfiguration(),
        _ body: (Stack, Gateway, [String: String]) async throws -> Void
    ) async throws {
        try await Stack.with(sandbox: configuration) { stack in
            let environment = try stack.catalog(Self.catalog)
            let gateway = try await stack.startGateway(environment: environment)
            let settings = environment.merging(stack.mailSettings(gateway: gateway)) { $1 }
            _ = try await stack.startDispatcher(environment: settings)
            try await body(stack, gateway, settings)
        }
    }

    @Test("a job becomes a mail with the template's text, and one click on its link stops that type's mail")
    func arrives() async throws {
        try await Self.with { stack, gateway, _ in
            try await stack.setAddress("ada@example.com", of: "ada", wanting: "paid", by: gateway)
            try await gateway.set(#"{"email":"ada@example.com","locale":"de-AT"}"#, of: "ada")
            try await stack.append([
                ("user", "ada"), ("type", "paid"), ("vars", #"{"amount":"€ 40","name":"<Eve>","number":"i9"}"#),
                ("url", "https://example.com/i9"),
            ])
            let mail = try await stack.firstMail()
            #expect(mail.recipient == "ada@example.com" && mail.sender == "notices@example.com")
            #expect(mail.subject == "You got € 40")
            #expect(mail.html == "<p>From &lt;Eve&gt;</p>")
            #expect(mail.text.hasPrefix("€ 40 from <Eve>\r\n\r\nInvoice i9\r\n\r\nhttps://example.com/i9"))
            #expect(mail.fields["from"] == #""Carillon" <notices@example.com>"#)
            #expect(mail.fields["list-unsubscribe-post"] == "List-Unsubscribe=One-Click")
            let id = try await stack.query("SELECT id::text FROM carillon.notifications").first?.text(0)
            #expect(mail.fields["message-id"] == "<\(id ?? "")@example.com>")
            try await eventually("the attempt is recorded") { try await stack.mailEnds(user: "ada") == ["accepted"] }

            let link = try #require(mail.unsubscribe)
            #expect(mail.text.contains("E-Mails zu „Zahlungen“ abbestellen: \(link)"))
            let click = TransferRequest(
                .post, url: link, headers: [("content-type", "application/x-www-form-urlencoded")],
                body: Array("List-Unsubscribe=One-Click".utf8), timeout: longestWait)
            #expect(try await stack.http.answer(click).status == 200)
            try await stack.append([("user", "ada"), ("type", "paid"), ("title", "Second")])
            try await eventually("the next one goes to the inbox alone") {
                try await stack.statuses(user: "ada")["Second"] == "sent"
            }
            #expect(try stack.mails().count == 1)
        }
    }

    @Test("Carillon's own words in a mail are in the language of the device used last, if the user set none")
    func language() async throws {
        try await Self.with { stack, gateway, _ in
            try await stack.setAddress("ada@example.com", of: "ada", wanting: "paid", by: gateway)
            let device = try await gateway.call(
                .post, "/v1/devices", token: Stack.token(user: "ada"),
                json: #"{"platform":"android","token":"ada-phone","locale":"de-AT"}"#)
            #expect(device.status == 201)
            try await stack.append([("user", "ada"), ("type", "paid"), ("title", "Hello")])
            let mail = try await stack.firstMail()
            #expect(mail.text.contains("E-Mails zu „Zahlungen“ abbestellen: "))
        }
    }

    @Test("mail goes to users who asked, and to all with an address if mail is required or the only channel")
    func recipients() async throws {
        try await Self.with { stack, gateway, _ in
            for user in ["asks", "silent"] {
                let type = user == "asks" ? "news" : nil
                try await stack.setAddress("\(user)@example.com", of: user, wanting: type, by: gateway)
            }
            for type in ["news", "receipt", "security"] {
                try await stack.append([
                    ("users", #"["asks","silent","homeless"]"#), ("type", type), ("title", type),
                ])
            }
            try await eventually("all wanted mails are there") {
                try await stack.makeDue(.email)
                return try Set(stack.mails().map { "\($0.recipient) \($0.subject)" }) == [
                    "asks@example.com news", "asks@example.com receipt", "asks@example.com security",
                    "silent@example.com receipt", "silent@example.com security",
                ]
            }
            for mail in try stack.mails() {
                #expect(
                    (mail.unsubscribe == nil) == (mail.subject == "security"), "a required type has no unsubscribe link"
                )
            }
            try await eventually("each has its status") {
                let homeless = try await stack.statuses(user: "homeless")
                let silent = try await stack.statuses(user: "silent")
                return homeless == ["news": "sent", "receipt": "failed", "security": "sent"]
                    && silent == ["news": "sent", "receipt": "sent", "security": "sent"]
            }
            let attempts = try await stack.mailEnds(user: "homeless")
            #expect(attempts == ["skipped no_address", "skipped no_address"])
            let via = try await stack.query(
                "SELECT sent_via FROM carillon.notifications WHERE user_id = 'silent' AND type = 'receipt'")
            #expect(try via.first?.text(0) == "email")
        }
    }

    @Test("a test send reports the relay's answer and advice, through the API and by command")
    func testSend() async throws {
        try await Self.with { stack, gateway, _ in
            try await stack.setAddress("ada@example.com", of: "ada", by: gateway)
            try await stack.setAddress("bounce-bob@example.com", of: "bob", by: gateway)
            let service = Stack.token(user: "app", scope: .service)
            func test(_ json: String) async throws -> Gateway.Answer {
                try await gateway.call(.post, "/v1/test-sends", token: service, json: json)
            }
            let accepted = try await test(#"{"user":"ada","channel":"email","title":"Hello?"}"#)
            #expect(accepted.status == 200)
            #expect(accepted.body["outcome"]?.string == "accepted")
            #expect(accepted.body["provider"]?.string == "email")
            #expect(accepted.body["answer"]?.string?.hasPrefix("250 ") == true)
            #expect(try stack.mails().map(\.subject) == ["Hello?"])
            let dead = try await test(#"{"user":"bob","channel":"email"}"#)
            #expect(dead.body["outcome"]?.string == "dead_token")
            #expect(dead.body["reason"]?.string == "SMTP_550_5.1.1")
            #expect(dead.body["advice"]?.string?.contains("another address") == true)
            // A test send records nothing and keeps the address valid.
            #expect(try await stack.mailAttempts(user: "bob").isEmpty)
            let invalid = "SELECT 1 FROM carillon.user_settings WHERE email_invalid_at IS NOT NULL"
            #expect(try await stack.query(invalid).isEmpty)
            #expect(try await test(#"{"user":"homeless","channel":"email"}"#).status == 404)
            #expect(try await test(#"{"user":"ada","channel":"fax"}"#).faults == ["channel"])
            #expect(try await test(#"{"user":"ada","channel":"email","device":"d"}"#).faults == ["device"])

            let command = try await stack.spawn(
                "dispatcher", ["send-test", "--user", "bob", "--email"], name: "send-mail")
            #expect(try await command.waitForExit() == .code(1))
            #expect(command.output().contains(#/advice: +there is no such mailbox/#))
        }
    }

    @Test("a notification read before its mail is due gets no mail; an unread one does")
    func escalation() async throws {
        try await Self.with { stack, gateway, _ in
            for user in ["reads", "sleeps"] {
                try await stack.setAddress("\(user)@example.com", of: user, by: gateway)
                try await stack.append([("user", user), ("type", "reminder"), ("title", "Due")])
            }
            try await eventually("both mails wait") {
                try await stack.query("SELECT 1 FROM carillon.follow_ups").count == 2
            }
            let token = Stack.token(user: "reads")
            let read = try await gateway.call(.post, "/v1/notifications/read", token: token, json: #"{"all":true}"#)
            #expect(read.status == 200)
            // The hour has passed.
            try await stack.query("UPDATE carillon.follow_ups SET due_at = now()")
            try await eventually("the other one is written to") {
                try await stack.makeDue(.email)
                return try stack.mails().map(\.recipient) == ["sleeps@example.com"]
            }
            try await eventually("nothing is left to do") {
                try await stack.query("SELECT FROM carillon.follow_ups").isEmpty
            }
            #expect(try stack.mails().count == 1)
            #expect(try await stack.mailAttempts(user: "reads").isEmpty)
        }
    }

    @Test("a notification whose receipt no socket proves is pushed although its mail went out")
    func unproven() async throws {
        try await Self.with { stack, gateway, _ in
            try await stack.setAddress("ada@example.com", of: "ada", wanting: "paid", by: gateway)
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            var behaviour = TestSocket.Behaviour()
            behaviour.answersPings = false
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada", behaviour: behaviour)
            try await stack.append([("user", "ada"), ("type", "paid"), ("title", "Paid")])
            try await eventually("the socket has it") { socket.titles == ["Paid"] }
            try await eventually("the relay has the mail") {
                try await stack.makeDue(.email)
                return try await stack.mailEnds(user: "ada") == ["accepted"]
            }
            try await eventually("the phone has the push") { stack.pushed()["ada-phone"] == ["Paid"] }
        }
    }

    @Test("an address that does not exist gets no mail until it is set again; a refusal keeps the address")
    func bounces() async throws {
        try await Self.with { stack, gateway, _ in
            try await stack.setAddress("bounce-ada@example.com", of: "ada", by: gateway)
            try await stack.setAddress("spam-eve@example.com", of: "eve", by: gateway)
            try await stack.append([("users", #"["ada","eve"]"#), ("type", "receipt"), ("title", "First")])
            for (user, reason) in [("ada", "SMTP_550_5.1.1"), ("eve", "SMTP_554_5.7.1")] {
                try await eventually("it has failed") {
                    // The relay may answer too late at first.
                    try await stack.makeDue(.email)
                    return try await stack.statuses(user: user) == ["First": "failed"]
                }
                #expect(try await stack.mailEnds(user: user) == ["failed \(reason)"])
            }
            let invalid = try await stack.query(
                "SELECT user_id, email_invalid_reason FROM carillon.user_settings WHERE email_invalid_at IS NOT NULL")
            #expect(try invalid.map { try $0.text(0) + " " + $0.text(1) } == ["ada SMTP_550_5.1.1"])
            try await stack.append([("users", #"["ada","eve"]"#), ("type", "receipt"), ("title", "Second")])
            try await eventually("one is skipped, the other is tried") {
                try await stack.makeDue(.email)
                let ada = try await stack.mailEnds(user: "ada")
                let eve = try await stack.mailEnds(user: "eve")
                return ada == ["failed SMTP_550_5.1.1", "skipped no_address"]
                    && eve == ["failed SMTP_554_5.7.1", "failed SMTP_554_5.7.1"]
            }
            try await stack.setAddress("ada@example.com", of: "ada", by: gateway)
            try await stack.append([("user", "ada"), ("type", "receipt"), ("title", "Third")])
            let mail = try await stack.firstMail()
            #expect(mail.recipient == "ada@example.com" && mail.subject == "Third")
        }
    }

    @Test("a mail that the relay defers or cuts off is retried with the same message id")
    func retries() async throws {
        try await Self.with { stack, gateway, _ in
            let reasons = [
                "busy-once-a": "SMTP_451_4.7.1", "later-once-b": "SMTP_452_4.3.1",
                "cut-once-c": "unknown_outcome:connectionLost",
            ]
            for user in reasons.keys {
                try await stack.setAddress("\(user)@example.com", of: user, by: gateway)
                try await stack.append([
                    ("user", user), ("type", "receipt"), ("title", "For \(user)"), ("lane", "critical"),
                ])
            }
            // Retries are made due instead of waiting for minutes.
            try await eventually("each was retried for its reason, and all have arrived") {
                try await stack.makeDue(.email)
                for (user, reason) in reasons {
                    guard try await stack.mailAttempts(user: user).contains("retry \(reason)") else { return false }
                }
                return try Set(stack.mails().map(\.recipient)).count == 3
            }
            let rows = try await stack.query("SELECT user_id, id::text FROM carillon.notifications")
            let ids = Dictionary(
                uniqueKeysWithValues: try rows.map {
                    ("\(try $0.text(0))@example.com", "<\(try $0.text(1))@example.com>")
                })
            for mail in try stack.mails() { #expect(mail.fields["message-id"] == ids[mail.recipient]) }
            let cut = try #require(stack.sandbox.cut().first)
            #expect(cut.headers["message-id"] == ids["cut-once-c@example.com"])
        }
    }

    @Test("a mail cancelled or opted out of while it waits for a retry is not sent")
    func gate() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog)
            let gateway = try await stack.startGateway(environment: environment)
            let settings = environment.merging(stack.mailSettings()) { $1 }
            var dead = settings
            dead["SMTP_URL"] = "smtp://127.0.0.1:1"
            let first = try await stack.startDispatcher(name: "first", environment: dead)
            for user in ["ada", "eve", "bob"] {
                try await stack.setAddress("\(user)@example.com", of: user, wanting: "news", by: gateway)
                try await stack.append([("user", user), ("type", "news"), ("title", "Hi"), ("id", "job-\(user)")])
            }
            try await eventually("all wait for retries") {
                for user in ["ada", "eve", "bob"] {
                    guard try await stack.mailAttempts(user: user).last == "retry not_sent:connect" else {
                        return false
                    }
                }
                return true
            }
            #expect(try await first.stop() == .code(0))
            let service = Stack.token(user: "app", scope: .service)
            #expect(try await gateway.call(.delete, "/v1/jobs/job-ada", token: service).status == 200)
            let refusal = try await gateway.call(
                .put, "/v1/preferences", token: Stack.token(user: "eve"),
                json: #"{"types":[{"type":"news","email":false}]}"#)
            #expect(refusal.status == 200)
            _ = try await stack.startDispatcher(name: "second", environment: settings)
            try await eventually("the third one arrives, the others are stopped at the gate") {
                try await stack.makeDue(.email)
                let ada = try await stack.mailAttempts(user: "ada").last
                let eve = try await stack.mailAttempts(user: "eve").last
                guard ada == "skipped cancelled", eve == "skipped opted_out" else { return false }
                return try !stack.mails().isEmpty
            }
            #expect(try stack.mails().map(\.recipient) == ["bob@example.com"])
        }
    }

    @Test("a mail that the relay is accepting during a cancel keeps the job open")
    func takenMeanwhile() async throws {
        var configuration = SandboxConfiguration()
        let pause = SlowPause(.seconds(600))
        configuration.slowPause = pause
        try await Self.with(sandbox: configuration) { stack, gateway, _ in
            try await stack.setAddress("slow-ada@example.com", of: "ada", wanting: "news", by: gateway)
            try await stack.append([("user", "ada"), ("type", "news"), ("title", "Hi"), ("id", "j1")])
            try await eventually("it is in the inbox, and the relay has not answered") {
                let statuses = try await stack.statuses(user: "ada")
                return try statuses == ["Hi": "sent"] && stack.mails().count == 1
            }
            let service = Stack.token(user: "app", scope: .service)
            let answer = try await gateway.call(.delete, "/v1/jobs/j1", token: service)
            #expect(answer.body["cancelled"]?.integer == 1)
            #expect(answer.body["final"]?.bool == false)
            pause.end()
            let report = try await eventualValue("the page is final") {
                let report = try await gateway.call(.get, "/v1/jobs/j1", token: service)
                return report.body["final"]?.bool == true ? report : nil
            }
            #expect(report.body["recipients"]?["sent"]?.integer == 1)
            let attempts = try await stack.mailEnds(user: "ada")
            #expect(attempts == ["accepted"])
        }
    }

    @Test("a relay that refuses the login keeps the mail; without a relay the attempt says no_provider")
    func configuration() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog)
            let gateway = try await stack.startGateway(environment: environment)
            try await stack.setAddress("ada@example.com", of: "ada", by: gateway)
            var settings = environment.merging(stack.mailSettings()) { $1 }
            settings["SMTP_URL"] = stack.sandbox.smtpURL.replacing("carillon:", with: "mallory:")
            let refused = try await stack.startDispatcher(name: "refused", environment: settings)
            try await stack.append([("user", "ada"), ("type", "receipt"), ("title", "Kept")])
            try await eventually("it is kept") {
                try await stack.mailAttempts(user: "ada").last == "retry SMTP_535_5.7.8"
            }
            #expect(try await stack.statuses(user: "ada") == ["Kept": "pending"])
            #expect(refused.errors().contains("provider rejected the credentials or settings"))
            for secret in ["pass:word", "pass%3A", "ada@example.com"] { #expect(!refused.errors().contains(secret)) }
            #expect(try await refused.stop() == .code(0))
            _ = try await stack.startDispatcher(name: "off", environment: environment)
            try await stack.append([("user", "ada"), ("type", "receipt"), ("title", "Unsent")])
            try await eventually("the mail is skipped") {
                try await stack.statuses(user: "ada")["Unsent"] == "failed"
            }
            #expect(try await stack.mailAttempts(user: "ada").contains("skipped no_provider"))
        }
    }

    @Test("faulty mail settings are named without their secrets")
    func faults() async throws {
        try await Stack.with { stack in
            for (settings, words) in [
                (
                    ["SMTP_URL": "http://u:secret-1@relay", "SMTP_FROM": "a@example.com"],
                    ["SMTP_URL cannot be used: must be smtp://"]
                ),
                (
                    ["SMTP_URL": "smtp://relay:x"],
                    ["SMTP_URL cannot be used: has a port", "SMTP_FROM is required with SMTP_URL"]
                ),
                (["SMTP_URL": "smtp://relay", "SMTP_FROM": "nobody"], ["SMTP_FROM cannot be used: must be"]),
                (["SMTP_URL": "smtp://relay"], ["SMTP_FROM is required with SMTP_URL"]),
            ] {
                let process = try await stack.spawn("dispatcher", ["run"], name: "faulty", environment: settings)
                #expect(try await process.waitForExit() == .code(78))
                let output = process.errors()
                for word in words { #expect(output.contains(word), "\(output)") }
                #expect(!output.contains("secret-1") && !output.contains("is missing"), "\(output)")
            }
        }
    }
}

/// Our mail as read by aiosmtpd and Python's message parser.
@Suite(.timeLimit(.minutes(10)), .enabled(if: PythonClient.has("aiosmtpd")))
struct EmailSinkTests {
    @Test("subject, text, addresses and encodings arrive unchanged")
    func reads() async throws {
        let certificate = try await TestCertificate.make()
        try await Stack.with { stack in
            let sink = try await PythonClient.start(
                "smtp_sink.py", [certificate.certificateFile, certificate.keyFile], in: stack.directory.path)
            let port = try await sink.wait(for: "ready ").dropFirst("ready ".count)
            let catalog = try stack.catalog("types: {receipt: {channels: [email]}}")
            let gateway = try await stack.startGateway(environment: catalog)
            var settings = catalog.merging(stack.mailSettings(gateway: gateway)) { $1 }
            settings["SMTP_URL"] = "smtp://ada:p%40ss%2Fword@127.0.0.1:\(port)/client.example"
            settings["SMTP_FROM"] = "Zürich, 東京 <notices@example.com>"
            settings["PROVIDER_CA"] = certificate.authorityFile
            _ = try await stack.startDispatcher(environment: settings)
            try await stack.setAddress("ada@example.com", of: "ada", by: gateway)
            let title = "Grüße 🎉 " + String(repeating: "sehr lang ", count: 15) + "Ende"
            let body = ".\n.punkt\n\n" + String(repeating: "ä", count: 200) + " = und blank \nEnde"
            try await stack.append([("user", "ada"), ("type", "receipt"), ("title", title), ("body", body)])
            let line = try await sink.wait(for: "mail ")
            let mail = try JSONParser.parse(Array(line.utf8.dropFirst("mail ".utf8.count)))
            #expect(mail["tls"]?.bool == true)
            #expect(mail["sender"]?.string == "notices@example.com")
            #expect(mail["recipients"]?.array?.compactMap(\.string) == ["ada@example.com"])
            #expect(mail["from"]?.array?.first?.array?.compactMap(\.string) == ["Zürich, 東京", "notices@example.com"])
            #expect(mail["fields"]?["subject"]?.string == title)
            #expect(mail["defects"]?.array?.isEmpty == true, "\(mail["defects"].debugDescription)")
            #expect(mail["best"]?.string == "text/html")
            let text = try #require(mail["texts"]?["text/plain"]?.string)
            #expect(text.replacing("\r\n", with: "\n").hasPrefix("\(title)\n\n\(body)\n\n-- \nUnsubscribe: http"))
            #expect(mail["texts"]?["text/html"]?.string?.contains(".punkt") == true)
            try await eventually("the sink's id for it is recorded") {
                try await stack.makeDue(.email)
                return try await stack.query(
                    "SELECT provider_id FROM carillon.delivery_attempts WHERE kind = 'email' AND outcome = 'accepted'"
                ).first?.optionalText(0) == "SINK1"
            }
        }
    }
}
