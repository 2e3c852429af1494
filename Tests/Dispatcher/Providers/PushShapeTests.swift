// Carillon · PushShapeTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Operations
import Testing

@testable import Providers

/// The push data of shapes; those of `examples/` serve unmodified clients.
@Suite("Push shapes")
struct PushShapeTests {
    /// Reads the shape of an example.
    private static func shape(_ example: String) throws -> PushShape {
        let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        let file = root.appending(path: "examples/\(example)/shape.yaml")
        let members = try ShapeFile.parse(String(contentsOf: file, encoding: .utf8))
        return try PushShape(members: members.map { ($0.key, $0.sources) })
    }

    private static func message() -> PushMessage {
        var message = Messages.make {
            $0.category = "politics"
            $0.entityType = "Transaction"
            $0.entityID = "e7"
            $0.extras.url = "/notifications/log"
            $0.data = Array(#"{"sourceCount":5,"priority":"breaking","type":"theirs"}"#.utf8)
        }
        message.code = 14
        return message
    }

    private static func data(_ shape: PushShape) throws -> [String: String] {
        let request = FCMRequest.make(
            self.message(), device: Messages.device(.fcm, token: "t"), settings: FCMSettings(url: "u", shape: shape),
            accessToken: "a")
        let members = try Messages.json(request)["message"]?["data"]?.object ?? []
        return Dictionary(uniqueKeysWithValues: members.map { ($0.key, $0.value.string ?? "no text") })
    }

    private static let id = Messages.id.description
    private static let rest = ["sourceCount": "5", "priority": "breaking"]

    @Test(
        "each system's clients find their keys as strings",
        arguments: [
            ("accounting", ["notification_id": id, "type": "greeting"]),
            (
                "news",
                ["storyId": "e7", "category": "politics", "notification_id": id, "type": "greeting"]
            ),
            (
                "allowance",
                ["notificationId": id, "type": "14", "relatedEntityType": "Transaction", "relatedEntityId": "e7"]
            ),
            (
                "household",
                ["notification_id": id, "type": "greeting", "task_id": "e7", "url": "/notifications/log"]
            ),
            (
                "scheduler",
                [
                    "notification_id": id, "type": "greeting", "category": "politics",
                    "deeplink": "/notifications/log",
                ]
            ),
        ] as [(String, [String: String])]
    )
    func systems(name: String, expected: [String: String]) throws {
        let shape = try Self.shape(name)
        // The accounting app's back-end kept the rest from the providers.
        let rest = name == "accounting" ? [:] : Self.rest
        #expect(try Self.data(shape) == expected.merging(rest) { old, _ in old })
    }

    @Test(
        "the job's data takes precedence over keys of each system's back-end",
        arguments: [
            ("news", ["storyId": "s1", "category": "sport"]),
            ("allowance", ["relatedEntityType": "Goal", "relatedEntityId": "g1"]),
            ("household", ["task_id": "t1"]),
            ("scheduler", ["category": "sleep", "deeplink": "/notifications/sleep"]),
        ] as [(String, [String: String])]
    )
    func ownData(name: String, said: [String: String]) throws {
        var message = Self.message()
        message.notification.data = JSONWriter.bytes(
            of: .object(said.sorted { $0.key < $1.key }.map { JSONMember($0.key, .string($0.value)) }))
        let shape = try Self.shape(name)
        let request = FCMRequest.make(
            message, device: Messages.device(.fcm, token: "t"), settings: FCMSettings(url: "u", shape: shape),
            accessToken: "a")
        let data = try Messages.json(request)["message"]?["data"]
        for (key, value) in said { #expect(data?[key]?.string == value) }
        #expect(data?["type"]?.string == (name == "allowance" ? "14" : "greeting"), "identifiers are Carillon's")
    }

    @Test(
        "a tap opens each system's app without an intent action",
        arguments: ["accounting", "allowance", "household", "news", "scheduler"]
    )
    func taps(name: String) throws {
        let request = FCMRequest.make(
            Self.message(), device: Messages.device(.fcm, token: "t"),
            settings: FCMSettings(url: "u", shape: try Self.shape(name)), accessToken: "a")
        let message = try #require(try Messages.json(request)["message"])
        let shown = try #require(message["android"]?["notification"])
        #expect(shown["tag"] != nil && shown["click_action"] == nil)
        // iOS selects its buttons by it.
        #expect(message["apns"]?["payload"]?["aps"]?["category"]?.string == "politics")
    }

    @Test("APNs gets the same keys with typed values")
    func apns() throws {
        let request = try APNSRequest.make(
            Self.message(), device: Messages.device(.apns, token: "t"), endpoint: "e", topic: "t", providerToken: "p",
            shape: try Self.shape("allowance"))
        let json = try Messages.json(request)
        #expect(json["relatedEntityId"]?.string == "e7")
        #expect(json["type"]?.integer == 14)
        #expect(json["sourceCount"]?.integer == 5)
    }

    @Test("an app's shape has sources, constants and members of the data")
    func own() throws {
        let shape = try PushShape(members: [
            ("a", ["entity_id"]), ("b", ["=fixed"]), ("c", ["data.sourceCount"]), ("d", ["org"]),
        ])
        #expect(try Self.data(shape) == ["a": "e7", "b": "fixed", "c": "5"])
    }

    @Test("the first source that has a value supplies it, and a key without one is left out")
    func alternatives() throws {
        let shape = try PushShape(members: [
            ("a", ["org", "data.missing", "category", "entity_id"]), ("b", ["data.priority", "category"]),
            ("c", ["org", "image"]), ("d", ["org", "=none"]),
        ])
        #expect(try Self.data(shape) == ["a": "politics", "b": "breaking", "d": "none"])
    }

    @Test("a null in the data is no value: no push has it, and the next source supplies the key")
    func nulls() throws {
        let shape = try PushShape(members: [("a", ["data.a", "entity_id"]), ("b", ["data.b"]), ("*", ["data"])])
        var message = Self.message()
        message.notification.data = Array(#"{"a":null,"b":null,"c":null,"d":[null]}"#.utf8)
        let fcm = FCMRequest.make(
            message, device: Messages.device(.fcm, token: "t"), settings: FCMSettings(url: "u", shape: shape),
            accessToken: "a")
        let sent = try #require(try Messages.json(fcm)["message"]?["data"]?.object)
        #expect(sent == [JSONMember("a", .string("e7")), JSONMember("d", .string("[null]"))])
        let apns = try APNSRequest.make(
            message, device: Messages.device(.apns, token: "t"), endpoint: "e", topic: "t", providerToken: "p",
            shape: shape)
        let payload = try Messages.json(apns)
        #expect(payload["a"]?.string == "e7")
        #expect(payload["b"] == nil && payload["c"] == nil && payload["d"]?.array == [.null])
    }

    @Test("the standard shape has the notification, its type and URL, and the job's data")
    func standard() throws {
        let own = ["notification_id": Self.id, "type": "greeting", "url": "/notifications/log"]
        #expect(try Self.data(.standard) == own.merging(Self.rest) { old, _ in old })
    }

    @Test("the badge's inbox version is included if the badge is the inbox's count")
    func badgeVersion() throws {
        let shape = try PushShape(members: [("seen", ["badge_version"])])
        #expect(try Self.data(shape).isEmpty)
        var message = Self.message()
        message.badgeVersion = 41
        let request = try APNSRequest.make(
            message, device: Messages.device(.apns, token: "t"), endpoint: "e", topic: "t", providerToken: "p",
            shape: shape)
        #expect(try Messages.json(request)["seen"]?.integer == 41)
    }

    @Test("an unknown source is named")
    func fault() {
        let fault = #expect(throws: CredentialFault.self) { try PushShape(members: [("a", ["type", "entity"])]) }
        #expect(fault?.setting == "shape")
        #expect(fault?.description.hasPrefix("a: unknown source entity; use one of notification_id, type") == true)
    }
}
