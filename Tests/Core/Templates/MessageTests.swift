// Carillon · MessageTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core

@Suite("Message templates", .timeLimit(.minutes(10)))
struct MessageTests {
    private static func set(_ titles: [String: String]) throws -> TemplateSet {
        var set = TemplateSet(owner: "type t")
        for (locale, title) in titles {
            let template = MessageTemplate(title: try TemplateText(title, .text))
            #expect(set.add(template, for: try #require(LocaleTag(locale))))
        }
        return set
    }

    @Test(
        "uses the nearest locale, then the default, then any",
        arguments: [
            ("zh-Hant-TW", "zh-hant"), ("zh-Hant", "zh-hant"), ("zh-TW", "zh"), ("zh_Hant_TW.UTF8", "en"),
            ("ZH_hant_tw", "zh-hant"), ("pt-BR", "en"), ("en-GB", "en"), ("", "en"), ("?", "en"),
            ("de-CH-x-private", "de"), ("zh-Hant-CN-u-fw-mon-ms-metric-mu-celsius", "zh-hant"),
            ("zh_TW_#Hant", "zh"), ("zh__#Hans", "zh"), ("de@calendar=gregorian;numbers=latn", "de"), ("#de", "en"),
        ]
    )
    func locales(wanted: String, expected: String) throws {
        let set = try Self.set(["zh-Hant": "a", "zh": "b", "en": "c", "de": "d"])
        #expect(set.locale(for: wanted, default: .english) == expected)
        #expect(set.locale(for: nil, default: .english) == "en")
        #expect(try Self.set(["fr": "f", "it": "i"]).locale(for: wanted, default: .english) == "fr")
        let swiss = try #require(LocaleTag("de-CH"))
        #expect(try Self.set(["de": "d", "aa": "i"]).locale(for: nil, default: swiss) == "de")
    }

    @Test(
        "former codes of languages, which Android uses, are today's, in templates too",
        arguments: [("in_ID", "id"), ("in", "id"), ("id-ID", "id"), ("iw_IL", "he"), ("ji", "yi"), ("ine", "en")])
    func formerCodes(wanted: String, expected: String) throws {
        let set = try Self.set(["en": "e", "id": "i", "iw": "h", "yi": "y"])
        #expect(set.locale(for: wanted, default: .english) == expected)
    }

    @Test(
        "ignores a malformed locale",
        arguments: [
            "", "a", "1", "de-", "-de", "de--CH", "d e", "de-abcdefghi", "äö", "de.UTF-8", "@", "_#de", "de@x",
        ]
    )
    func noLocale(text: String) {
        #expect(LocaleTag(text) == nil)
    }

    @Test("only locales that need a missing variable have a fault, which names variable, type and locale")
    func partial() throws {
        let set = try Self.set(["en": "Hello {{name}}", "de": "Hallo {{name}}, {{amount}}"])
        let variables = TemplateVariables([JSONMember("name", .string("Ada"))])
        var renderer = MessageRenderer(set, default: .english, variables: variables)
        #expect(try renderer.message(locale: "en").title == "Hello Ada")
        let fault = JobFault("vars.amount", "is missing, in type t, locale de")
        #expect(throws: fault) { try renderer.message(locale: "de-AT") }
        #expect(throws: fault) { try renderer.message(locale: "de") }
        #expect(renderer.faults() == [fault])
        #expect(renderer.isLocalized)
    }

    @Test("rendered text that is too long is cut after a whole character")
    func cut() throws {
        #expect("abc".cut(to: 3) == "abc")
        #expect("abcd".cut(to: 3) == "ab…")
        // A family emoji is one character of seven scalars.
        let family = "👨‍👩‍👧‍👦"
        #expect((family + family).cut(to: 9) == family + "…")
        #expect((family + family).cut(to: 7) == "…")
        var template = MessageTemplate(title: try TemplateText("{{t}}", .text))
        template.body = try TemplateText("{{b}}", .text)
        let long = String(repeating: "é", count: 5_000)
        let members = ["t", "b"].map { JSONMember($0, .string(long)) }
        let message = try template.render(TemplateVariables(members))
        #expect(message.title.unicodeScalars.count == JobLimits.title)
        #expect(message.title.hasSuffix("é…"))
        #expect(message.body.unicodeScalars.count == JobLimits.body)
    }

    @Test("e-mail parts are rendered too, with HTML escaped and never cut")
    func email() throws {
        var template = MessageTemplate(title: try TemplateText("Hi", .text))
        template.emailSubject = try TemplateText("About {{a}}", .text)
        template.emailHTML = try TemplateText("<p>{{a}}</p>", .html)
        let message = try template.render(TemplateVariables([JSONMember("a", .string("<1>"))]))
        #expect(message.emailSubject == "About <1>")
        #expect(message.emailHTML == "<p>&lt;1&gt;</p>")
        #expect(message.emailText == nil)
        let long = JSONValue.string(String(repeating: "x", count: RenderedMessage.longestEmail))
        #expect(throws: TemplateVariableFault.self) {
            try template.render(TemplateVariables([JSONMember("a", long)]))
        }
    }
}
