// Carillon · AppsFileTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Operations

@Suite("File of apps")
struct AppsFileTests {
    @Test("parses providers, settings and a shape")
    func reads() throws {
        let apps = try AppsFile.parse(
            """
            apps:
              news:
                fcm: {credentials: /etc/news.json, rate: 500}
                shape: /etc/news-shape.yaml
                devices: 5
              family:
                apns: {key: k.p8, key_id: K, team_id: T, topic: org.example}
                shape:
                  relatedEntityId: [data.relatedEntityId, entity_id]
                  "*": data
              plain:
                shape: standard
            """)
        #expect(apps.map(\.name) == ["news", "family", "plain"])
        #expect(apps[0].providers == ["fcm": ["credentials": "/etc/news.json", "rate": "500"]])
        #expect(apps[0].shape == .file("/etc/news-shape.yaml"))
        #expect(apps.map(\.devices) == [5, nil, nil])
        #expect(apps[1].providers["apns"]?["topic"] == "org.example")
        guard case .members(let members) = apps[1].shape else {
            Issue.record("the shape has no members")
            return
        }
        #expect(members.map(\.key) == ["relatedEntityId", "*"])
        #expect(members.map(\.sources) == [["data.relatedEntityId", "entity_id"], ["data"]])
        #expect(apps[2].shape == .standard)
    }

    @Test("each fault has its line and shows no value")
    func faults() {
        let sources = "expected a source or a list of them, such as [data.id, entity_id]"
        let fault = #expect(throws: AppsFaults.self) {
            try AppsFile.parse(
                """
                other: 1
                apps:
                  one: hunter2
                  two:
                    fcm: hunter2
                    apns: {key: [hunter2]}
                    shape: [hunter2]
                    devices: 101
                  three:
                    shape: {story: {hunter2: 1}, id: [], type: ""}
                  four:
                    devices: 200000000000000000:00
                    fcm: {key: null, project: ~}
                    shape: null
                """)
        }
        #expect(
            fault?.faults == [
                "line 1: expected `apps:` with an entry for each app",
                "line 3: app one: expected providers and a shape",
                "line 5: app two: fcm: expected settings",
                "line 6: app two: apns.key must be text",
                "line 7: app two: shape must be `standard`, a path, or keys and their sources",
                "line 8: app two: devices must be a whole number from 1 to 100",
                "line 10: app three: shape: story: \(sources)",
                "line 10: app three: shape: id: \(sources)",
                "line 10: app three: shape: type: \(sources)",
                "line 12: app four: devices must be a whole number from 1 to 100",
                "line 13: app four: fcm.key must be text",
                "line 13: app four: fcm.project must be text",
                "line 14: app four: shape must be `standard`, a path, or keys and their sources",
            ])
        #expect(throws: AppsFaults.self) { try AppsFile.parse("a: [") }
        #expect(throws: AppsFaults.self) { try AppsFile.parse("") }
        #expect(throws: AppsFaults.self) { try AppsFile.load(path: "/nowhere") }
    }

    @Test("a shape file has keys, each with a source or a list of sources")
    func shapeFile() throws {
        let members = try ShapeFile.parse("story: [data.story, entity_id]\ntype: code\n")
        #expect(members.map(\.key) == ["story", "type"])
        #expect(members.map(\.sources) == [["data.story", "entity_id"], ["code"]])
    }

    @Test(
        "a fault in a shape file has its line, its key and the fix",
        arguments: [
            (
                "type: code\nstory: {a: b}",
                "line 2: story: expected a source or a list of them, such as [data.id, entity_id]"
            ),
            ("a: [", "not valid YAML"),
            ("", "expected keys and their sources, such as `id: notification_id`"),
            ("- type", "expected keys and their sources, such as `id: notification_id`"),
        ]
    )
    func shapeFileFaults(text: String, expected: String) {
        let fault = #expect(throws: AppsFaults.self) { try ShapeFile.parse(text) }
        #expect(fault?.faults == [expected])
    }

    @Test("an app without a list of push services uses that of the variables; one without Web Push has none")
    func origins() throws {
        let apps = try AppsFile.parse(
            """
            apps:
              own:
                webpush: {key: k, origins: "https://push.example"}
              none:
                webpush: {key: k}
              phones:
                fcm: {credentials: c}
            """)
        func origins(_ list: String?) -> [String?] {
            apps.map { $0.completed(origins: list).providers["webpush"]?["origins"] }
        }
        #expect(origins("https://*.apple.com") == ["https://push.example", "https://*.apple.com", nil])
        #expect(origins(nil) == ["https://push.example", nil, nil])
        #expect(apps.map { $0.completed(origins: "*").providers.keys.sorted() } == [["webpush"], ["webpush"], ["fcm"]])
    }

    @Test("a fault names the variable or the app")
    func settingNames() {
        #expect(AppSettings(name: "default").settingName(of: "fcm", "credentials") == "FCM_CREDENTIALS")
        #expect(AppSettings(name: "news").settingName(of: "fcm", "credentials") == "APPS: app news: fcm.credentials")
        #expect(AppSettings(name: "default").settingName(of: "fcm", "shape") == "PUSH_SHAPE")
    }
}
