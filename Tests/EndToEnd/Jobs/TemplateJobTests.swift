// Carillon · TemplateJobTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Support
import Testing

@testable import Clients
@testable import HTTP

/// Jobs with text from the catalog's templates.
@Suite(.timeLimit(.minutes(10)))
struct TemplateJobTests {
    private static let catalog = """
        types:
          paid:
            delivery: push
            channels: [in_app, push, email]
            templates:
              en:
                title: "{{amount}} from {{name}}"
                body: "Invoice {{invoice.number}}"
                email_subject: "You got {{amount}}"
                email_html: "<p>{{name}}</p>"
              de: {title: "{{amount}} von {{name}}{{late}}"}
              pt-BR: {title: "{{amount}} de {{name}}"}
          plain: {}
        templates:
          welcome:
            en: {title: "Welcome {{name}}"}
        """

    private static let vars = #"{"amount":"€ 40","name":"<Ada>","invoice":{"number":"i9"}}"#

    @Test("each user gets the text of their settings' locale, a device's or the default")
    func locales() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog)
            let gateway = try await stack.startBoth(environment: environment)
            for (user, locale) in [("br", "pt-BR"), ("gb", "en-GB"), ("fr", "fr")] {
                let token = Stack.token(user: user)
                let json = #"{"locale":"\#(locale)"}"#
                #expect(try await gateway.call(.put, "/v1/settings", token: token, json: json).status == 200)
            }
            let mail = try await gateway.call(
                .put, "/v1/preferences", token: Stack.token(user: "none"),
                json: #"{"types":[{"type":"paid","email":true}]}"#)
            #expect(mail.status == 200)
            let device = #"{"platform":"android","token":"phone","locale":"pt_BR"}"#
            let token = Stack.token(user: "device")
            #expect(try await gateway.call(.post, "/v1/devices", token: token, json: device).status == 201)
            try await stack.append([
                ("users", #"["br","gb","fr","device","none"]"#), ("type", "paid"), ("vars", Self.vars),
            ])
            try await eventually("all have it") { try await stack.texts(user: "none").count == 1 }
            let portuguese = ["€ 40 de <Ada>", ""]
            let english = ["€ 40 from <Ada>", "Invoice i9"]
            #expect(try await stack.texts(user: "br") == [portuguese])
            #expect(try await stack.texts(user: "device") == [portuguese])
            for user in ["gb", "fr", "none"] { #expect(try await stack.texts(user: user) == [english]) }
            try await eventually("the phone has it") { stack.pushed() == ["phone": ["€ 40 de <Ada>"]] }
            // The notification keeps its e-mail parts, with HTML escaped.
            let rows = try await stack.query(
                "SELECT extras #>> '{platform,email,subject}', extras #>> '{platform,email,html}' "
                    + "FROM carillon.notifications WHERE user_id = 'none'")
            #expect(try rows.map { try $0.text(0) } == ["You got € 40"])
            #expect(try rows.map { try $0.text(1) } == ["<p>&lt;Ada&gt;</p>"])

            try await stack.append([
                ("user", "none"), ("type", "plain"), ("template", "welcome"), ("vars", #"{"name":"Eve"}"#),
            ])
            try await eventually("a named template") {
                try await stack.texts(user: "none").map(\.first) == [english[0], "Welcome Eve"]
            }
        }
    }

    @Test("only notifications with e-mail hold its texts, also those of a template in one locale")
    func mailOnly() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(
                """
                types:
                  paid:
                    channels: [in_app, email]
                    templates:
                      en: {title: "Got {{amount}}", email_html: "<p>{{amount}}</p>"}
                """
            )
            let gateway = try await stack.startBoth(environment: environment)
            let mail = try await gateway.call(
                .put, "/v1/preferences", token: Stack.token(user: "ada"),
                json: #"{"types":[{"type":"paid","email":true}]}"#)
            #expect(mail.status == 200)
            try await gateway.set(#"{"locale":"de"}"#, of: "ben")
            try await stack.append([("users", #"["ada","ben"]"#), ("type", "paid"), ("vars", #"{"amount":"9"}"#)])
            try await eventually("both have it") { try await stack.texts(user: "ben") == [["Got 9", ""]] }
            #expect(try await stack.texts(user: "ada") == [["Got 9", ""]])
            let holders = try await stack.query(
                "SELECT user_id FROM carillon.notifications WHERE extras #>> '{platform,email,html}' = '<p>9</p>'")
            #expect(try holders.map { try $0.text(0) } == ["ada"])
            #expect(
                try await stack.query("SELECT FROM carillon.notifications WHERE extras -> 'platform' IS NOT NULL").count
                    == 1)
        }
    }

    @Test("a text that fails for some users dead-letters their copies only")
    func partial() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog)
            let gateway = try await stack.startBoth(environment: environment)
            for user in ["hans", "heidi"] {
                let token = Stack.token(user: user)
                _ = try await gateway.call(.put, "/v1/settings", token: token, json: #"{"locale":"de-CH"}"#)
            }
            let entry = try await stack.append([
                ("users", #"["ada","hans","heidi","eve"]"#), ("except", #"["eve"]"#), ("type", "paid"), ("id", "j1"),
                ("vars", Self.vars),
            ])
            try await eventually("the others have theirs") { try await stack.texts(user: "ada").count == 1 }
            try await eventually("the dead letter is there") { try await stack.deadReasons().count == 1 }
            #expect(try await stack.deadReasons() == [entry: "vars.late: is missing, in type paid, locale de"])
            for user in ["hans", "heidi", "eve"] { #expect(try await stack.texts(user: user).isEmpty) }
            let letter = try await stack.query("SELECT fields FROM carillon.dead_letters")
            let fields = try JSONParser.parse(try #require(try letter.first?.optionalJSON(0))).array
            let named = fields?.compactMap { $0.strings }.filter { $0.first != "vars" }
            #expect(named == [["type", "paid"], ["id", "j1"], ["users", #"["hans","heidi"]"#]])
        }
    }

    @Test("a text that cannot be rendered is refused by the API and dead-lettered by the dispatcher")
    func faults() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(Self.catalog)
            let gateway = try await stack.startBoth(environment: environment)
            let cases: [([(String, String)], String, String)] = [
                ([("type", "plain"), ("template", "none")], "template", "is not in the catalog"),
                ([("type", "plain"), ("vars", "{}")], "vars", "needs a template, as the type has none of its own"),
                ([("type", "paid"), ("vars", "{}"), ("title", "x")], "vars", "cannot be combined with title or body"),
                (
                    [("type", "plain"), ("template", "welcome")], "vars.name",
                    "is missing, in template welcome, locale en"
                ),
                (
                    [("type", "plain"), ("template", "welcome"), ("vars", #"{"name":{"first":"A"}}"#)], "vars.name",
                    "is an object; give text or a number, in template welcome, locale en"
                ),
            ]
            let service = Stack.token(user: "backend", scope: .service)
            var expected: [String: String] = [:]
            for (fields, field, reason) in cases {
                let entry = try await stack.append([("user", "u")] + fields)
                expected[entry] = "\(field): \(reason)"
                let members = (fields + [("user", "u")]).map { name, value in
                    value.hasPrefix("{") ? #""\#(name)":\#(value)"# : #""\#(name)":"\#(value)""#
                }
                let json = "{\(members.joined(separator: ","))}"
                let answer = try await gateway.call(.post, "/v1/jobs", token: service, json: json)
                #expect(answer.status == 422)
                #expect(answer.faults == [field])
                let schedule = #"{"at":"2099-01-01T00:00:00Z","job":\#(json)}"#
                let scheduled = try await gateway.call(.post, "/v1/schedules", token: service, json: schedule)
                #expect(scheduled.status == 422)
                #expect(scheduled.faults == ["job.\(field)"])
            }
            try await eventually("all are dead-lettered") { try await stack.deadReasons() == expected }
            #expect(try await stack.query("SELECT FROM carillon.notifications").isEmpty)
        }
    }
}
