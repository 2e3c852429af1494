// Carillon · CatalogTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core

@Suite("Catalog", .timeLimit(.minutes(10)))
struct CatalogTests {
    private static func parse(_ text: String) throws(CatalogFaults) -> Catalog {
        try CatalogParser.parse([("c.yaml", text)])
    }

    @Test("reads every setting, with types in any order")
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
                push_when_online: true
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
        full.isPushedWhenOnline = true
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

    @Test("a type is not found by another spelling of the same characters")
    func spelling() throws {
        let catalog = try Self.parse("types: {factur\u{E9}: {templates: {en: {title: Hello}}}}")
        #expect(catalog["factur\u{E9}"] != nil && catalog.templates(of: "factur\u{E9}") != nil)
        #expect(catalog["facture\u{301}"] == nil && catalog.templates(of: "facture\u{301}") == nil)
    }

    @Test("advises on delays after which a notification has expired")
    func lateDelays() throws {
        let catalog = try Self.parse(
            """
            defaults: {title: News, delivery: push, channels: [in_app, push, email], email_after: 23h}
            types:
              early: {}
              late: {email_after: 24h}
              brief: {email_after: 30s, time_to_live: 60s}
              silent: {email_after: 30s, time_to_live: 60s, delivery: in_app}
            """)
        #expect(
            CatalogAdvice.lines(for: catalog).sorted() == [
                "type brief: attention_delay is not shorter than time_to_live, so it expires before its push is due",
                "type late: email_after is not shorter than time_to_live, so it expires before its mail is due",
            ])
    }

    @Test("types and categories have names by language, icons and pictures")
    func presentations() throws {
        let catalog = try Self.parse(
            """
            default_locale: de
            types:
              paid:
                title: {en: Paid, de: Bezahlt, pt-BR: Pago}
                description: Somebody paid
                icon: coins
                image: https://cdn.example.com/paid.png
                actor: customer
              party: {icon: 🎉}
            categories:
              money: {title: {en: Money}, icon: https://cdn.example.com/i.svg}
            """)
        let paid = catalog.presentation(ofType: "paid")
        func title(_ wanted: String...) -> String? { paid.title.text(for: wanted, default: catalog.defaultLocale) }
        #expect(title("en") == "Paid" && title("pt-BR") == "Pago" && title("de-AT") == "Bezahlt")
        #expect(title("fr", "en-GB") == "Paid" && title("fr") == "Bezahlt" && title("!") == "Bezahlt")
        #expect(paid.description.text(for: ["ja"], default: catalog.defaultLocale) == "Somebody paid")
        #expect(paid.icon == "coins" && paid.image == "https://cdn.example.com/paid.png" && paid.actor == "customer")
        #expect(catalog.presentation(ofType: "party").icon == "🎉")
        #expect(catalog.presentation(ofType: "party").title.text(for: ["en"], default: catalog.defaultLocale) == nil)
        let money = catalog.presentation(ofCategory: "money")
        #expect(money.title.text(for: ["fr"], default: catalog.defaultLocale) == "Money")
        #expect(catalog.presentation(ofCategory: "other") == Presentation())
    }

    @Test("omitted settings have the documented defaults")
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
        #expect(type.attentionDelay == .seconds(60) && !type.isPushedWhenOnline)
        #expect(type.emailDelay == nil && type.cap == nil && type.digest == nil)
        #expect(type.badge == .unseen && type.pushPriority == nil && !type.isRetractedOnRead)
    }

    @Test(
        "a badge is the count, none, or a fixed number",
        arguments: [("true", BadgeRule.unseen), ("false", .absent), ("0", .number(0)), ("99999", .number(99_999))])
    func badges(text: String, expected: BadgeRule) throws {
        #expect(try Self.parse("types: {t: {badge: \(text)}}")["t"]?.badge == expected)
    }

    @Test(
        "times to live need a unit",
        arguments: [("1s", 1), ("90s", 90), ("15m", 900), ("24h", 86_400), ("30d", 2_592_000)]
    )
    func durations(text: String, seconds: Int) throws {
        #expect(try Self.parse("types: {t: {time_to_live: \(text)}}")["t"]?.timeToLive == .seconds(seconds))
    }

    @Test("a file's defaults apply to its types unless overridden")
    func fileDefaults() throws {
        let one = """
            defaults: {lane: bulk, time_to_live: 30d, templates: {en: {title: Hello}}}
            types:
              a: {}
              b: {lane: critical}
            """
        let catalog = try CatalogParser.parse([("1.yaml", one), ("2.yaml", "types: {c: {}}")])
        #expect(catalog.all.map(\.lane) == [.bulk, .critical, .normal])
        #expect(catalog["b"]?.timeToLive == .seconds(30 * 86_400))
        #expect(catalog.templates(of: "a") != nil && catalog.templates(of: "c") == nil)
    }

    @Test("reads caps across types, by user and by category")
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

    @Test("equal texts have equal digests, others do not")
    func digest() throws {
        let digest = try Self.parse("types: {a: {}}").digest
        #expect(digest.count == 16)
        #expect(try Self.parse("types: {a: {}}").digest == digest)
        #expect(try Self.parse("types: {b: {}}").digest != digest)
    }

    @Test("cap names are unique; categories without a type are left out, with advice")
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
        let advice = CatalogAdvice.lines(for: catalog).filter { $0.contains("cap") }
        #expect(advice == ["category other: has a cap, but no type has the category"])
        #expect(try Self.parse("types: {a: {}}").capNames == [])
    }
}

@Suite("Actions of the catalog", .timeLimit(.minutes(10)))
struct ActionTests {
    private static let text = """
        types:
          task: {actions: tasks}
          plain: {}
        actions:
          tasks:
            buttons:
              edit: {title: {en: Edit, de: Bearbeiten}, foreground: true}
              cancel: {title: {en: Cancel}, destructive: true, authentication: true}
              bare: {}
            rules:
              - {states: [overdue, due_soon], category: TASK_ACTIONABLE, buttons: [edit, cancel]}
              - {states: [done], category: TASK_COMPLETED, buttons: []}
            default: {buttons: [bare]}
        """

    @Test("the state selects category and buttons; other states get the default")
    func picks() throws {
        let catalog = try CatalogParser.parse([("c.yaml", Self.text)])
        let actions = try #require(catalog.actions(of: "task"))
        #expect(actions.rule(for: "overdue")?.category == "TASK_ACTIONABLE")
        #expect(actions.rule(for: "due_soon")?.buttons.map(\.id) == ["edit", "cancel"])
        #expect(actions.rule(for: "done")?.buttons == [])
        for state in ["Overdue", "elsewhere", nil] {
            #expect(actions.rule(for: state)?.buttons.map(\.id) == ["bare"])
            #expect(actions.rule(for: state)?.category == nil)
        }
        #expect(catalog.actions(of: "plain") == nil)
        let buttons = try #require(actions.rule(for: "overdue")?.buttons)
        #expect(buttons[0].isForeground && !buttons[0].isDestructive)
        #expect(buttons[1].isDestructive && buttons[1].needsAuthentication)
        #expect(buttons[0].title(for: "de-CH", default: .english) == "Bearbeiten")
        #expect(buttons[0].title(for: "fr", default: .english) == "Edit")
        #expect(actions.rule(for: nil)?.buttons.first?.title(for: "de", default: .english) == "bare")
    }

    @Test("picks the category of the job, else the rule's, else the type's if a rule applies")
    func buttonCategories() throws {
        let text = """
            types:
              task: {actions: tasks, category: chores}
              news: {actions: news, category: world}
              plain: {category: chores}
            actions:
              tasks:
                buttons: {edit: {}}
                rules: [{states: [overdue], category: TASK_ACTIONABLE, buttons: [edit]}]
              news: {buttons: {save: {}}, default: {buttons: [save]}}
            """
        let catalog = try CatalogParser.parse([("c.yaml", text)])
        func category(_ type: String, state: String? = nil, own: String? = nil, data: String? = nil) -> String? {
            let moment = Timestamp(seconds: 1_795_168_800)
            var notification = Notification(
                id: NotificationID(high: 1, low: 2), user: "u", type: type, createdAt: moment)
            notification.category = own ?? catalog[type]?.category
            notification.extras.state = state
            notification.data = data.map { Array($0.utf8) }
            return catalog.buttonCategory(of: notification)
        }
        #expect(category("task", state: "overdue") == "TASK_ACTIONABLE")
        #expect(category("task", state: "overdue", own: "MINE") == "MINE")
        #expect(category("task") == nil)
        #expect(category("task", state: "elsewhere") == nil)
        #expect(category("news") == "world")
        #expect(category("news", data: #"{"count":2}"#) == "world")
        #expect(category("news", data: #"{"actions":[]}"#) == nil)
        // Stored before numbers had a limit.
        #expect(category("news", data: #"{"actions":[],"count":10e308}"#) == nil)
        #expect(category("news", own: "MINE", data: #"{"actions":[]}"#) == "MINE")
        #expect(category("plain") == nil)
        #expect(category("plain", own: "MINE") == "MINE")
        #expect(category("removed from the catalog", own: "MINE") == "MINE")
    }

    @Test(
        "faults name file and line",
        arguments: [
            ("buttons: 5", "expected buttons with an entry for each"),
            ("buttons: {a: {colour: red}}", "unknown setting button a.colour"),
            ("buttons: {a: {title: [Edit]}}", "button a.title must be text"),
            (
                "buttons: {a: {title: {en!: Edit}}}",
                "button a.title: en! is not a locale; use one such as en, pt-BR or zh-Hant"
            ),
            ("buttons: {a: {foreground: 1}}", "button a.foreground must be true or false"),
            ("rules: {}", "rules must be a list of {states: …, category: …, buttons: …}"),
            ("rules: [{buttons: []}]", "a rule needs states"),
            ("rules: [{states: s}]", "states must be a list of texts"),
            ("rules: [{states: [s]}, {states: [s]}]", "state s has two rules"),
            ("rules: [{states: [s], buttons: [none]}]", "button none is not among the buttons"),
            ("default: {states: [s]}", "unknown setting states of a rule"),
            ("other: {}", "unknown setting other"),
        ]
    )
    func faults(setting: String, reason: String) {
        let fault = CatalogFaults([CatalogFault("c.yaml:3: actions t: \(reason)")])
        #expect(throws: fault) { try CatalogParser.parse([("c.yaml", "actions:\n  t:\n    \(setting)\n")]) }
    }
}

@Suite("Catalog topics", .timeLimit(.minutes(10)))
struct TopicTests {
    private static let text = """
        topics:
          news: {open: true}
          "team/*": {open: true}
          "team/*/secret": {}
          team/board: {open: false}
          "*x*y": {open: true}
          caf\u{e9}: {open: true}
        """

    @Test(
        "an exact name wins, then the longest pattern; unknown topics are closed",
        arguments: [
            ("news", true), ("news2", false), ("new", false), ("", false), ("team/", true), ("team/blue", true),
            ("team/blue/green", true), ("team/blue/secret", false), ("team/board", false), ("team", false),
            ("xy", true), ("axxbyy", true), ("axbyc", false), ("yx", false), ("caf\u{e9}", true),
            ("cafe\u{301}", false),
        ]
    )
    func open(topic: String, isOpen: Bool) throws {
        let catalog = try CatalogParser.parse([("c.yaml", Self.text)])
        #expect(catalog.isOpen(topic: topic) == isOpen)
    }

    @Test(
        "topic faults name file and line",
        arguments: [
            ("topics: 5", "c.yaml:1: expected `topics:` with an entry for each topic"),
            ("topics:\n  a: 5", "c.yaml:2: topic a: expected settings"),
            ("topics:\n  a: {open: maybe}", "c.yaml:2: topic a: open must be true or false"),
            ("topics:\n  a: {colour: red}", "c.yaml:2: topic a: unknown setting colour"),
        ]
    )
    func faults(text: String, fault: String) {
        #expect(throws: CatalogFaults([CatalogFault(fault)])) { try CatalogParser.parse([("c.yaml", text)]) }
    }

    @Test("a topic in two files is a fault; a file may hold only topics")
    func files() throws {
        #expect(throws: CatalogFaults([CatalogFault("a.yaml:1 and b.yaml:1: topic a is defined twice")])) {
            try CatalogParser.parse([("a.yaml", "topics: {a: {}}"), ("b.yaml", "topics: {a: {}}")])
        }
        #expect(try CatalogParser.parse([("c.yaml", "topics: {}")]).all.isEmpty)
    }
}
