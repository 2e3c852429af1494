// Carillon · CatalogFaultTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Testing

@testable import Core

@Suite("Catalog faults", .timeLimit(.minutes(10)))
struct CatalogFaultTests {
    private static func parse(_ text: String) throws(CatalogFaults) -> Catalog {
        try CatalogParser.parse([("c.yaml", text)])
    }

    private static func fault(_ text: String) -> String {
        do throws(CatalogFaults) {
            _ = try Self.parse(text)
            return "no fault"
        } catch {
            return error.description
        }
    }

    private static let iconFault =
        "icon must be an emoji, a URL that begins with https://, or one of "
        + Presentation.icons.sorted().joined(separator: ", ")

    @Test(
        "each fault names file, line, type, setting and the rule",
        arguments: [
            ("colour: red", "unknown setting colour"),
            ("title: [a]", "title must be text"), ("title: null", "title must be text"),
            ("title: ~", "title must be text"), ("title: {en: Null}", "title.en must be text"),
            ("actor: null", "actor has 1 to 128 characters"),
            ("title: {english!: Hi}", "title: english! is not a locale; use one such as en, pt-BR or zh-Hant"),
            ("title: {en: Hi, EN: Ho}", "title.EN occurs twice"),
            ("icon: trombone", Self.iconFault), ("icon: ab", Self.iconFault),
            ("icon: 'http://a.example/i.png'", Self.iconFault),
            ("image: picture.png", "image must be a URL that begins with https://"),
            ("actor: ''", "actor has 1 to 128 characters"),
            ("severity: fatal", "severity must be one of alert, warning, info"),
            ("delivery: email", "delivery must be one of push, in_app"),
            ("lane: [bulk]", "lane must be one of critical, normal, bulk"),
            ("category: ''", "category must be text"),
            ("sound: [a]", "sound must be text"),
            ("code: one", "code must be a whole number"),
            ("code: 1.5", "code must be a whole number"),
            ("code: 12:30", "code must be a whole number"),
            ("code: 1:2:3:4:5:6:7:8:9:10:11", "code must be a whole number"),
            ("default: maybe", "default must be true or false"),
            ("required: 1", "required must be true or false"),
            ("enabled: {}", "enabled must be true or false"),
            ("channels: push", "channels must be a list out of in_app, push, email"),
            ("channels: []", "channels must be a list out of in_app, push, email"),
            ("channels: [push, sms]", "channels must be one of in_app, push, email"),
            ("time_to_live: 60", "time_to_live must be a number and a unit, such as 90s, 15m, 24h or 30d"),
            ("time_to_live: 0s", "time_to_live must be a number and a unit, such as 90s, 15m, 24h or 30d"),
            ("time_to_live: -1h", "time_to_live must be a number and a unit, such as 90s, 15m, 24h or 30d"),
            ("time_to_live: 1w", "time_to_live must be a number and a unit, such as 90s, 15m, 24h or 30d"),
            ("time_to_live: ''", "time_to_live must be a number and a unit, such as 90s, 15m, 24h or 30d"),
            ("quiet_hours: later", "quiet_hours must be one of defer, in_app_only, drop, ignore"),
            ("quiet_hours: ignore", "quiet_hours: ignore is for severity alert only"),
            ("attention_delay: 5", "attention_delay must be a number and a unit, such as 90s, 15m, 24h or 30d"),
            ("push_when_online: always", "push_when_online must be true or false"),
            ("email_after: 24h", "email_after needs email among the channels"),
            ("cap: 3", "expected cap as {count: 3, per: 1h}"),
            ("cap: {count: 3}", "cap needs count and per"),
            ("cap: {count: 0, per: 1h}", "cap.count must be a whole number from 1 to 10000"),
            ("cap: {count: 1, per: 1h, of: 2}", "unknown setting cap.of"),
            ("digest: {}", "digest needs a window"),
            ("digest: {window: 0s}", "digest.window must be a number and a unit, such as 90s, 15m, 24h or 30d"),
            ("digest: {window: 1h, sliding: true}", "a sliding digest needs a maximum"),
            ("digest: {window: 1h, maximum: 2h}", "digest.maximum needs sliding: true"),
            (
                "digest: {window: 1h, sliding: true, maximum: 1m}",
                "digest.maximum is shorter than the window"
            ),
            ("digest: {window: 1h, singles: -1}", "digest.singles must be a whole number from 0 to 1000"),
            (
                "digest: {window: 1h, singles: 200000000000000000:00}",
                "digest.singles must be a whole number from 0 to 1000"
            ),
            ("digest: {window: 1h, size: 1}", "unknown setting digest.size"),
            ("badge: -1", "badge must be true, false or a whole number from 0 to 99999"),
            ("badge: many", "badge must be true, false or a whole number from 0 to 99999"),
            (
                "badge: 200000000000000000:00",
                "badge must be true, false or a whole number from 0 to 99999"
            ),
            ("push_priority: urgent", "push_priority must be one of high, normal"),
            ("retract_on_read: yes please", "retract_on_read must be true or false"),
            ("templates: {}", "templates needs a locale"),
            ("templates: [en]", "expected templates with an entry for each locale"),
            (
                "templates: {english!: {title: a}}",
                "templates: english! is not a locale; use one such as en, pt-BR or zh-Hant"
            ),
            ("templates: {en: {body: a}}", "templates.en needs a title"),
            ("templates: {en: {title: a, subject: b}}", "unknown setting templates.en.subject"),
            ("templates: {en: {title: '{{a'}}", "templates.en.title: a tag is not closed"),
            ("templates: {en: {title: '{{#a}}b'}}", "templates.en.title: a section is not closed"),
            ("templates: {en: {title: '{{> a}}'}}", "templates.en.title: partials and blocks are not supported"),
            ("templates: {EN: {title: a}, en: {title: b}}", "templates.en occurs twice"),
            ("actions: buttons", "actions buttons are not in the catalog"),
        ]
    )
    func faults(setting: String, reason: String) {
        let text = "types:\n  good: {}\n  bad:\n    lane: bulk\n    \(setting)\n"
        guard !setting.hasPrefix("lane") else {
            return #expect(
                Self.fault("types:\n  good: {}\n  bad:\n    code: 1\n    \(setting)\n")
                    == "c.yaml:5: type bad: \(reason)")
        }
        #expect(Self.fault(text) == "c.yaml:5: type bad: \(reason)")
    }

    @Test("refuses texts that are not a catalog", arguments: ["", "[]", "just text"])
    func noCatalog(text: String) {
        #expect(
            Self.fault(text)
                == "c.yaml: expected one or more of defaults, types, categories, topics, templates, actions, caps, "
                + "default_locale")
    }

    @Test(
        "refuses unknown top-level keys",
        arguments: [
            ("types:", "expected `types:` with an entry for each type"),
            ("types: []", "expected `types:` with an entry for each type"),
            (
                "kinds: {}",
                "unknown key kinds, expected defaults, types, categories, topics, templates, actions, caps, "
                    + "default_locale"
            ),
            ("default_locale: null", "default_locale must be a locale such as en, pt-BR or zh-Hant"),
            ("default_locale: 5", "default_locale must be a locale such as en, pt-BR or zh-Hant"),
        ]
    )
    func top(text: String, reason: String) {
        #expect(Self.fault(text) == "c.yaml:1: \(reason)")
    }

    @Test("settings must be a mapping, and names must be valid")
    func shapes() {
        #expect(Self.fault("types:\n  a: {}\n  t: loud\n") == "c.yaml:3: type t: expected settings")
        let long = String(repeating: "n", count: 129)
        #expect(Self.fault("types:\n  \(long): {}\n") == "c.yaml:2: a type's name has 1 to 128 characters")
        #expect(Self.fault("types:\n  '': {}\n") == "c.yaml:2: a type's name has 1 to 128 characters")
        #expect(Self.fault("actions:\n  '': {}\n") == "c.yaml:2: a set's name has 1 to 128 characters")
        #expect(Self.fault("types:\n  'category:x': {}\n").hasSuffix("must not begin with category:"))
    }

    @Test(
        "suggests the setting that a typing error means",
        arguments: [
            ("types: {t: {severty: info}}", "type t: unknown setting severty; did you mean severity?"),
            ("types: {t: {titel: a}}", "type t: unknown setting titel; did you mean title?"),
            ("types: {t: {cap: {count: 1, pre: 1h, per: 1h}}}", "type t: unknown setting cap.pre; did you mean per?"),
            ("defaults: {lan: bulk}\ntypes: {}", "defaults: unknown setting lan; did you mean lane?"),
        ]
    )
    func typingErrors(text: String, fault: String) {
        #expect(Self.fault(text) == "c.yaml:1: \(fault)")
    }

    @Test(
        "refuses malformed YAML with its line",
        arguments: [
            ("types: {", 2), ("types:\n\t- x", 2), ("a: b: c", 1), ("types: &x *y", 1), ("types:\n  a: *y\n", 2),
            ("types:\n  a: {}\n  b: c: d\n", 3), ("types:\n  a: {}\n  b: [1\n", 4),
        ]
    )
    func noYAML(text: String, line: Int) {
        let fault = Self.fault(text)
        #expect(fault.hasPrefix("c.yaml:\(line): not valid YAML: "), "\(fault)")
        #expect(!fault.contains("expected one or more of") && !fault.contains("\n"), "\(fault)")
    }

    @Test(
        "refuses a type or setting that occurs twice in a file, with its first line",
        arguments: [
            ("types:\n  a: {}\n  t: {}\n  t: {}\n", "t", 3), ("types:\n  t:\n    code: 1\n    code: 2\n", "code", 3),
        ]
    )
    func duplicateKeys(text: String, key: String, line: Int) {
        #expect(Self.fault(text) == "c.yaml:\(line): \(key) is defined twice")
    }

    @Test("reports all faults of all files at once, collisions with both places")
    func all() {
        let one = """
            types:
              a: {code: 1, lane: slow}
              b: {severity: fatal, colour: red}
            templates:
              hello: {en: {title: Hi}}
            caps: {user: {count: 1, per: 1h}}
            default_locale: de
            """
        let other = """
            types:
              c: {code: 1}
              a: {}
            templates:
              hello: {en: {title: Hi}}
            caps:
              user: {count: 1, per: 1h}
              categories: {news: {count: 1}}
            default_locale: en
            topics: {x: {open: 1}}
            """
        let expected = [
            "1.yaml:2: type a: lane must be one of critical, normal, bulk",
            "1.yaml:3: type b: severity must be one of alert, warning, info",
            "1.yaml:3: type b: unknown setting colour",
            "2.yaml:8: caps: categories.news needs count and per",
            "2.yaml:10: topic x: open must be true or false",
            "1.yaml:2 and 2.yaml:3: type a is defined twice",
            "1.yaml:2 and 2.yaml:2: code 1 belongs to two types",
            "1.yaml:5 and 2.yaml:5: template hello is defined twice",
            "1.yaml:6 and 2.yaml:7: the cap of users is set twice",
            "1.yaml:7 and 2.yaml:9: default_locale is set twice",
        ]
        do throws(CatalogFaults) {
            _ = try CatalogParser.parse([("1.yaml", one), ("2.yaml", other)])
            Issue.record("no fault")
        } catch {
            #expect(error.faults.map(\.description) == expected)
        }
    }

    @Test("reports a fault of a file's defaults once")
    func fileDefaults() {
        #expect(
            Self.fault("defaults:\n  lane: slow\ntypes: {a: {}, b: {}}")
                == "c.yaml:2: defaults: lane must be one of critical, normal, bulk")
        #expect(Self.fault("defaults: {}") == "c.yaml:1: defaults need types in the same file")
    }

    @Test("reports a fault in a block of text with its own line")
    func blocks() {
        let text = """
            types:
              t:
                templates:
                  en:
                    title: a
                    body: |
                      one
                      {{> two}}
            """
        #expect(
            Self.fault(text) == "c.yaml:8: type t: templates.en.body: partials and blocks are not supported")
    }
}
