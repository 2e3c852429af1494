// Carillon · CatalogTests.swift
// SPDX-License-Identifier: Apache-2.0

import Catalog
import Foundation
import Model
import Testing

@Suite("Catalog", .timeLimit(.minutes(1)))
struct CatalogTests {
    private static func parse(_ text: String) throws(CatalogFault) -> [NotificationType] {
        try CatalogLoader.parse(text, file: "c.yaml")
    }

    private static func fault(_ text: String) -> String {
        do throws(CatalogFault) {
            _ = try Catalog(try Self.parse(text))
            return "no fault"
        } catch {
            return error.description
        }
    }

    @Test("Every setting is read, in any order of types")
    func reads() throws {
        let text = """
            # A comment.
            types:
              plain: {}
              full:
                code: 42
                severity: warning
                delivery: push
                lane: bulk
                category: news
                sound: ding.caf
                channels: [in_app, email]
                default: false
                required: true
                enabled: false
                time_to_live: 90s
            """
        var full = NotificationType(name: "full")
        full.code = 42
        full.severity = .warning
        full.delivery = .push
        full.lane = .bulk
        full.category = "news"
        full.sound = "ding.caf"
        full.channels = [.inApp, .email]
        full.isOnByDefault = false
        full.isRequired = true
        full.isEnabled = false
        full.timeToLive = .seconds(90)
        let catalog = try Catalog(try Self.parse(text))
        #expect(catalog["full"] == full)
        #expect(catalog["plain"] == NotificationType(name: "plain"))
        #expect(catalog["Plain"] == nil)
        #expect(catalog.all.map(\.name) == ["full", "plain"])
    }

    @Test("What is left out has the defaults that the documents name")
    func defaults() throws {
        let type = try #require(try Self.parse("types: {t: {}}").first)
        #expect(type.code == nil)
        #expect(type.severity == .info)
        #expect(type.delivery == .inApp)
        #expect(type.lane == .normal)
        #expect(type.channels == [.inApp, .push])
        #expect(type.isOnByDefault && !type.isRequired && type.isEnabled)
        #expect(type.timeToLive == .seconds(86_400))
    }

    @Test(
        "Times to live have a unit",
        arguments: [("1s", 1), ("90s", 90), ("15m", 900), ("24h", 86_400), ("30d", 2_592_000)]
    )
    func durations(text: String, seconds: Int) throws {
        #expect(try Self.parse("types: {t: {time_to_live: \(text)}}").first?.timeToLive == .seconds(seconds))
    }

    @Test(
        "Each fault names file, line, type, setting and what is expected",
        arguments: [
            ("colour: red", "unknown setting colour"),
            ("severity: fatal", "severity must be one of alert, warning, info"),
            ("delivery: email", "delivery must be one of push, in_app"),
            ("lane: [bulk]", "lane must be one of critical, normal, bulk"),
            ("category: ''", "category must be text"),
            ("sound: [a]", "sound must be text"),
            ("code: one", "code must be a whole number"),
            ("code: 1.5", "code must be a whole number"),
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

    @Test(
        "What is no catalog is refused",
        arguments: ["", "types:", "types: []", "types: x", "kinds: {}", "[]", "just text"]
    )
    func noCatalog(text: String) {
        #expect(Self.fault(text) == "c.yaml: expected `types:` with an entry for each type")
    }

    @Test("Settings must be settings, names must be names")
    func shapes() {
        #expect(Self.fault("types:\n  a: {}\n  t: loud\n") == "c.yaml:3: type t: expected settings")
        let long = String(repeating: "n", count: 129)
        #expect(Self.fault("types:\n  \(long): {}\n").hasSuffix("a name has 1 to 128 characters"))
        #expect(Self.fault("types:\n  '': {}\n").hasSuffix("a name has 1 to 128 characters"))
    }

    @Test(
        "Text that is no YAML is refused with its place",
        arguments: ["types: {", "types:\n\t- x", "a: b: c", "types: &x *y"])
    func noYAML(text: String) {
        #expect(Self.fault(text).hasPrefix("c.yaml: "))
        #expect(Self.fault(text) != "c.yaml: expected `types:` with an entry for each type")
    }

    @Test("A type that comes twice in a file is refused, and so is a setting")
    func duplicateKeys() {
        #expect(Self.fault("types:\n  t: {}\n  t: {}\n").hasPrefix("c.yaml: "))
        #expect(Self.fault("types:\n  t:\n    code: 1\n    code: 2\n").hasPrefix("c.yaml: "))
    }

    @Test("A type or a code that two files define is refused")
    func duplicates() {
        let type = NotificationType(name: "t")
        #expect(throws: CatalogFault("type t is defined twice")) { try Catalog([type, type]) }
        var one = NotificationType(name: "a")
        var other = NotificationType(name: "b")
        one.code = 7
        other.code = 7
        #expect(throws: CatalogFault("types a and b share the code 7")) { try Catalog([one, other]) }
    }
}
