// Carillon · CatalogTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Testing

@Suite("Catalog", .timeLimit(.minutes(10)))
struct CatalogTests {
    private static func parse(_ text: String) throws(CatalogFaults) -> Catalog {
        try CatalogLoader.parse([("c.yaml", text)])
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
                quiet_hours: in_app_only
                attention_delay: 2m
                email_after: 24h
                cap: {count: 3, per: 1h}
                digest: {window: 15m, sliding: true, maximum: 1h, singles: 5}
                badge: false
                push_priority: high
                retract_on_read: true
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
        full.quietHours = .inAppOnly
        full.attentionDelay = .seconds(120)
        full.emailDelay = .seconds(86_400)
        full.cap = FrequencyCap(count: 3, window: .seconds(3_600))
        full.digest = DigestRule(window: .seconds(900), maximum: .seconds(3_600))
        full.digest?.isSliding = true
        full.digest?.singles = 5
        full.badge = .absent
        full.pushPriority = .high
        full.isRetractedOnRead = true
        let catalog = try Self.parse(text)
        #expect(catalog["full"] == full)
        #expect(catalog["plain"] == NotificationType(name: "plain"))
        #expect(catalog["Plain"] == nil)
        #expect(catalog.all.map(\.name) == ["full", "plain"])
    }

    @Test("What is left out has the defaults that the documents name")
    func defaults() throws {
        let type = try #require(try Self.parse("types: {t: {}}")["t"])
        #expect(type.code == nil)
        #expect(type.severity == .info)
        #expect(type.delivery == .inApp)
        #expect(type.lane == .normal)
        #expect(type.channels == [.inApp, .push])
        #expect(type.isOnByDefault && !type.isRequired && type.isEnabled)
        #expect(type.timeToLive == .seconds(86_400))
        #expect(type.quietHours == .defer)
        #expect(type.attentionDelay == .seconds(60))
        #expect(type.emailDelay == nil && type.cap == nil && type.digest == nil)
        #expect(type.badge == .unseen && type.pushPriority == nil && !type.isRetractedOnRead)
    }

    @Test(
        "A badge is the count, nothing, or always the same number",
        arguments: [("true", BadgeRule.unseen), ("false", .absent), ("0", .number(0)), ("99999", .number(99_999))])
    func badges(text: String, expected: BadgeRule) throws {
        #expect(try Self.parse("types: {t: {badge: \(text)}}")["t"]?.badge == expected)
    }

    @Test(
        "Times to live have a unit",
        arguments: [("1s", 1), ("90s", 90), ("15m", 900), ("24h", 86_400), ("30d", 2_592_000)]
    )
    func durations(text: String, seconds: Int) throws {
        #expect(try Self.parse("types: {t: {time_to_live: \(text)}}")["t"]?.timeToLive == .seconds(seconds))
    }

    @Test("A file's defaults hold for its types unless they say otherwise")
    func fileDefaults() throws {
        let one = """
            defaults: {lane: bulk, time_to_live: 30d, templates: {en: {title: Hello}}}
            types:
              a: {}
              b: {lane: critical}
            """
        let catalog = try CatalogLoader.parse([("1.yaml", one), ("2.yaml", "types: {c: {}}")])
        #expect(catalog.all.map(\.lane) == [.bulk, .critical, .normal])
        #expect(catalog["b"]?.timeToLive == .seconds(30 * 86_400))
        #expect(catalog.templates(of: "a") != nil && catalog.templates(of: "c") == nil)
    }

    @Test("Caps over all types are read, by user and by category")
    func caps() throws {
        let text = """
            caps:
              user: {count: 10, per: 24h}
              categories:
                news: {count: 3, per: 1h}
            """
        let catalog = try Self.parse(text)
        #expect(catalog.userCap == FrequencyCap(count: 10, window: .seconds(86_400)))
        #expect(catalog.cap(category: "news") == FrequencyCap(count: 3, window: .seconds(3_600)))
        #expect(catalog.cap(category: "other") == nil)
        #expect(try Self.parse("types: {}").userCap == nil)
    }

    @Test("The same texts have the same digest, others another")
    func digest() throws {
        let digest = try Self.parse("types: {a: {}}").digest
        #expect(digest.count == 16)
        #expect(try Self.parse("types: {a: {}}").digest == digest)
        #expect(try Self.parse("types: {b: {}}").digest != digest)
    }

    @Test("Caps have their names once each, those of categories that no type has left out")
    func capNames() throws {
        let text = """
            types:
              a: {category: news, cap: {count: 3, per: 1h}}
              b: {category: news}
              c: {cap: {count: 1, per: 1h}}
            caps:
              user: {count: 10, per: 24h}
              categories:
                news: {count: 5, per: 1h}
                other: {count: 5, per: 1h}
            """
        let catalog = try Self.parse(text)
        #expect(catalog.capNames == ["category:news", "type:a", "type:c", "user"])
        #expect(catalog.caps(ofType: "a").map(\.name) == ["type:a", "category:news", "user"])
        #expect(try Self.parse("types: {a: {}}").capNames == [])
    }
}
