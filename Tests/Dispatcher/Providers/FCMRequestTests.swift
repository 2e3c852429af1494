// Carillon · FCMRequestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Providers

@Suite("FCM requests", .timeLimit(.minutes(10)))
struct FCMRequestTests {
    @Test("writes a minimal message for every platform")
    func least() {
        let request = Messages.fcm(Messages.make())
        #expect(request.url == "https://fcm.example/v1/projects/p1/messages:send")
        #expect(Messages.headers(request) == ["authorization: Bearer ya29", "content-type: application/json"])
        #expect(
            Messages.text(request)
                == #"{"message":{"token":"tok\"en","notification":{"title":"Hello","body":"World"},"#
                + #""data":{"notification_id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","type":"greeting"},"#
                + #""android":{"priority":"HIGH","notification":{"tag":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","notification_count":3}},"#
                + #""apns":{"headers":{"apns-priority":"10","apns-collapse-id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3"},"#
                + #""payload":{"aps":{"badge":3,"sound":"default"}}},"#
                + #""webpush":{"headers":{"Urgency":"high"},"#
                + #""notification":{"tag":"01a1f866-0d7b-841c-a9a6-5597aa0575f3"}}}}"#)
    }

    @Test("writes a message with every field")
    func everything() {
        let message = Messages.make {
            $0.severity = .alert
            $0.data = Array(#"{"invoice":"i9","n":1.50,"deep":{"a":[true,null]},"url":"mine"}"#.utf8)
            $0.extras.url = "https://example.org/i9"
            $0.category = "payments"
            $0.extras.image = "https://example.org/i.png"
            $0.extras.sound = "ding"
            $0.extras.badge = 9
            $0.collapseKey = "k"
            $0.expiresAt = Messages.now + .milliseconds(90_900)
        }
        #expect(
            Messages.text(Messages.fcm(message))
                == #"{"message":{"token":"tok\"en","notification":{"title":"Hello","body":"World","#
                + #""image":"https://example.org/i.png"},"#
                + #""data":{"notification_id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","type":"greeting","#
                + #""url":"https://example.org/i9","invoice":"i9","n":"1.50","deep":"{\"a\":[true,null]}"},"#
                + #""android":{"priority":"HIGH","ttl":"90s","notification":{"tag":"k","event_time":"2026-11-20T10:00:00.000Z","#
                + #""sound":"ding","notification_count":9}},"#
                + #""apns":{"headers":{"apns-priority":"10","apns-expiration":"1795168890","apns-collapse-id":"k"},"#
                + #""payload":{"aps":{"badge":9,"sound":"ding","category":"payments","#
                + #""interruption-level":"time-sensitive","mutable-content":1}}},"#
                + #""webpush":{"headers":{"Urgency":"high","TTL":"90"},"notification":{"tag":"k"},"#
                + #""fcm_options":{"link":"https://example.org/i9"}}}}"#
        )
    }

    @Test(
        "the time to live is clamped to FCM's range",
        arguments: [(-5, "0s"), (0, "0s"), (1, "1s"), (40 * 86_400, "2419200s")])
    func timeToLive(seconds: Int, expected: String) throws {
        let request = Messages.fcm(Messages.make { $0.expiresAt = Messages.now + .seconds(seconds) })
        #expect(try Messages.json(request)["message"]?["android"]?["ttl"]?.string == expected)
    }

    @Test("the time to live ends when the notification is no longer kept, if it has not expired before")
    func kept() throws {
        for (expiry, expected) in [(90, "60s"), (30, "30s"), (nil, "60s")] as [(Int?, String)] {
            let request = Messages.fcm(
                Messages.make {
                    $0.expiresAt = expiry.map { Messages.now + .seconds($0) }
                    $0.keepUntil = Messages.now + .seconds(60)
                })
            #expect(try Messages.json(request)["message"]?["android"]?["ttl"]?.string == expected)
        }
    }

    @Test(
        "Apple devices behind FCM get an expiry of at most four weeks",
        arguments: [
            (.seconds(0), "1795168800"), (.seconds(2_419_199), "1797587999"), (.seconds(2_419_201), "1797588000"),
            (.seconds(8_000 * 365 * 86_400), "1797588000"),
        ] as [(Duration, String)])
    func expiration(lifetime: Duration, expected: String) throws {
        let request = Messages.fcm(Messages.make { $0.expiresAt = Messages.now + lifetime })
        let headers = try Messages.json(request)["message"]?["apns"]?["headers"]
        #expect(headers?["apns-expiration"]?.string == expected)
    }

    @Test(
        "FCM's reserved names get a prefix; ours cannot be replaced",
        arguments: [
            ("from", "data_from"), ("message_type", "data_message_type"), ("collapse_key", "data_collapse_key"),
            ("google.x", "data_google.x"), ("gcm", "data_gcm"), ("gcm.n.e", "data_gcm.n.e"), ("story", "story"),
        ]
    )
    func reservedNames(name: String, expected: String) throws {
        let request = Messages.fcm(Messages.make { $0.data = Array(#"{"\#(name)":"v","type":"evil"}"#.utf8) })
        let data = try Messages.json(request)["message"]?["data"]
        #expect(data?.object?.map(\.key) == ["notification_id", "type", expected])
        #expect(data?["type"]?.string == "greeting")
    }

    @Test(
        "a prefixed name that the job uses itself keeps the job's value",
        arguments: [
            #"{"from":1,"data_from":2}"#, #"{"data_from":2,"from":1}"#,
        ])
    func renamed(data: String) throws {
        let request = Messages.fcm(Messages.make { $0.data = Array(data.utf8) })
        let sent = try #require(try Messages.json(request)["message"]?["data"])
        #expect(sent.object?.map(\.key) == ["notification_id", "type", "data_from"])
        #expect(sent["data_from"]?.string == "2")
    }

    @Test("the URL is part of the data")
    func url() throws {
        let request = Messages.fcm(Messages.make { $0.extras.url = "app://x" })
        #expect(try Messages.json(request)["message"]?["data"]?["url"]?.string == "app://x")
    }

    @Test("data that does not fit is reduced to the id, to the byte")
    func dataGivesWay() throws {
        func request(_ length: Int) -> ProviderRequest {
            let text = String(repeating: "é", count: length / 2) + String(repeating: "a", count: length % 2)
            return Messages.fcm(Messages.make { $0.data = Array(#"{"k":"\#(text)"}"#.utf8) }, platform: .android)
        }
        let room = 4_096 - (try Messages.fcmSize(request(0)))
        #expect(try Messages.fcmSize(request(room)) == 4_096)
        let reduced = request(room + 1)
        #expect(try Messages.json(reduced)["message"]?["data"]?.object?.map(\.key) == ["notification_id", "type"])
        #expect(try Messages.json(reduced)["message"]?["notification"]?["body"]?.string == "World")
    }

    @Test("for an iPhone, the payload that FCM makes for Apple fits Apple's limit")
    func appleLimit() throws {
        // FCM counts a quote as one byte; in Apple's JSON it takes two.
        func quotes(_ count: Int) -> String { String(repeating: "\"", count: count) }
        func data(_ count: Int, _ platform: Platform) throws -> [String]? {
            let job = JSONWriter.bytes(of: .object([JSONMember("k", .string(quotes(count)))]))
            let request = Messages.fcm(Messages.make { $0.data = job }, platform: platform)
            return try Messages.json(request)["message"]?["data"]?.object?.map(\.key)
        }
        let whole = ["notification_id", "type", "k"]
        let reduced = ["notification_id", "type"]
        #expect(try data(1_700, .ios) == whole)
        #expect(try data(2_000, .ios) == reduced)
        #expect(try data(2_000, .android) == whole)

        func body(_ platform: Platform, apns: String = "{}") throws -> String {
            let message = Messages.make {
                $0.body = quotes(2_000)
                $0.extras.platform = Array(#"{"fcm":{"apns":{"payload":\#(apns)}}}"#.utf8)
            }
            let sent = try Messages.json(Messages.fcm(message, platform: platform))
            return try #require(sent["message"]?["notification"]?["body"]?.string)
        }
        #expect(try body(.android) == quotes(2_000))
        let cut = try body(.ios)
        #expect(cut.hasSuffix("…"))
        #expect((1_800..<1_900).contains(cut.count))
        // Members that the job adds to the payload take room too.
        let added = String(repeating: "a", count: 500)
        let shorter = try body(.ios, apns: #"{"x":"\#(added)"}"#)
        #expect((230...280).contains(cut.count - shorter.count))
    }

    @Test("the longest allowed job still fits", arguments: ["a", "é", "😀", "👩🏽‍🚒", "e\u{301}"])
    func bodyIsShortened(character: String) throws {
        let body = String(String(repeating: character, count: 4_096).unicodeScalars.prefix(4_096))
        let message = Messages.make {
            $0.title = String(repeating: "😀", count: 255)
            $0.type = String(repeating: "😀", count: 128)
            $0.body = body
            $0.extras.image = "https://example.org/" + String(repeating: "é", count: 2_000)
            $0.data = Array(#"{"k":"v"}"#.utf8)
        }
        let request = Messages.fcm(message, platform: .android)
        #expect((3_900...4_096).contains(try Messages.fcmSize(request)))
        let sent = try #require(try Messages.json(request)["message"]?["notification"]?["body"]?.string)
        #expect(sent.hasSuffix("…"))
        #expect(sent.dropLast().allSatisfy { String($0) == character })
        #expect(body.hasPrefix(sent.dropLast()))
    }

    @Test("an image is dropped before the body is cut")
    func imageGivesWay() throws {
        let body = String(repeating: "a", count: 3_900)
        let message = Messages.make {
            $0.body = body
            $0.extras.image = "https://example.org/" + String(repeating: "i", count: 500)
        }
        let request = Messages.fcm(message, platform: .android)
        let notification = try Messages.json(request)["message"]?["notification"]
        #expect(notification?["body"]?.string == body)
        #expect(notification?["image"] == nil)
    }

    @Test(
        "all but bulk messages have high priority",
        arguments: [
            (Lane.normal, nil, "HIGH", "10", "high"), (.bulk, nil, "NORMAL", "5", "normal"),
            (.bulk, PushPriority.high, "HIGH", "10", "high"),
        ]
            as [(Lane, PushPriority?, String, String, String)])
    func priority(lane: Lane, own: PushPriority?, android: String, apple: String, web: String) throws {
        let request = Messages.fcm(
            Messages.make {
                $0.lane = lane
                $0.extras.pushPriority = own
            })
        let message = try #require(try Messages.json(request)["message"])
        #expect(message["android"]?["priority"]?.string == android)
        #expect(message["apns"]?["headers"]?["apns-priority"]?.string == apple)
        #expect(message["webpush"]?["headers"]?["Urgency"]?.string == web)
    }

    @Test("a job may set FCM fields: members of Android's notification, and whole blocks")
    func overrides() throws {
        let request = Messages.fcm(
            Messages.make {
                $0.extras.platform = Array(
                    #"""
                    {"fcm":{"channel_id":"alarms","title_loc_key":"T","unknown":1,
                    "android":{"ttl":"5s","direct_boot_ok":true},"apns":{"payload":{"aps":{"badge":null}}},
                    "fcm_options":{"analytics_label":"x"}},"apns":{"thread_id":"no"}}
                    """#.utf8)
            })
        let message = try #require(try Messages.json(request)["message"])
        #expect(message["android"]?["notification"]?["channel_id"]?.string == "alarms")
        #expect(message["android"]?["notification"]?["title_loc_key"]?.string == "T")
        #expect(message["android"]?["notification"]?["tag"] != nil)
        #expect(message["android"]?["ttl"]?.string == "5s")
        #expect(message["android"]?["direct_boot_ok"]?.bool == true)
        #expect(message["android"]?["priority"]?.string == "HIGH")
        #expect(message["apns"]?["payload"]?["aps"]?["badge"] == nil)
        #expect(message["fcm_options"]?["analytics_label"]?.string == "x")
        #expect(message["unknown"] == nil)
        #expect(message["token"]?.string == "tok\"en")
    }

    @Test("keeps stored JSON that is beyond the limits of a new job")
    func earlierLimits() throws {
        let marks = "a" + String(repeating: "\u{300}", count: 65)
        let request = Messages.fcm(
            Messages.make {
                $0.data = Array(#"{"k":"\#(marks)"}"#.utf8)
                $0.extras.platform = Array(#"{"fcm":{"channel_id":"\#(marks)"}}"#.utf8)
            })
        let message = try JSONParser.parse(stored: request.body)["message"]
        #expect(message?["data"]?["k"]?.string == marks)
        #expect(message?["android"]?["notification"]?["channel_id"]?.string == marks)
    }

    @Test(
        "a tap requests an intent action only if the app's settings or the job name one",
        arguments: [
            (nil, "{}", nil), ("OPEN_NOTIFICATION", "{}", "OPEN_NOTIFICATION"), ("category", "{}", "payments"),
            (nil, #"{"fcm":{"click_action":"PAY"}}"#, "PAY"), ("category", #"{"fcm":{"click_action":"PAY"}}"#, "PAY"),
            ("category", #"{"fcm":{"click_action":null}}"#, nil),
            (nil, #"{"fcm":{"android":{"notification":{"click_action":"PAY"}}}}"#, "PAY"),
        ] as [(String?, String, String?)]
    )
    func clickAction(setting: String?, platform: String, expected: String?) throws {
        let message = Messages.make {
            $0.category = "payments"
            $0.extras.platform = Array(platform.utf8)
        }
        let request = FCMRequest.make(
            message, device: Messages.device(.fcm, token: "t"), settings: FCMSettings(url: "u", clickAction: setting),
            accessToken: "a")
        let sent = try Messages.json(request)["message"]
        #expect(sent?["android"]?["notification"]?["click_action"]?.string == expected)
        #expect(sent?["apns"]?["payload"]?["aps"]?["category"]?.string == "payments")
    }

    @Test("the category setting requests no intent action without a category")
    func noCategory() throws {
        let request = FCMRequest.make(
            Messages.make(), device: Messages.device(.fcm, token: "t"),
            settings: FCMSettings(url: "u", clickAction: "category"), accessToken: "a")
        let shown = try #require(try Messages.json(request)["message"]?["android"]?["notification"])
        #expect(shown["tag"] != nil && shown["click_action"] == nil)
    }

    @Test("content-available for iPhones behind FCM is added to Apple's block")
    func contentAvailable() throws {
        let request = Messages.fcm(
            Messages.make {
                $0.extras.platform = Array(
                    #"{"fcm":{"apns":{"payload":{"aps":{"content-available":1}}}},"apns":{"content_available":true}}"#
                        .utf8)
            })
        let message = try #require(try Messages.json(request)["message"])
        let aps = message["apns"]?["payload"]?["aps"]
        #expect(aps?["content-available"]?.integer == 1)
        #expect(aps?["badge"]?.integer == 3 && aps?["sound"]?.string == "default")
        #expect(message["notification"]?["title"]?.string == "Hello")
        // Apple's own fields are for devices reached without FCM.
        let other = Messages.fcm(
            Messages.make { $0.extras.platform = Array(#"{"apns":{"content_available":true}}"#.utf8) })
        let plain = try Messages.json(other)["message"]?["apns"]?["payload"]?["aps"]
        #expect(plain?["badge"]?.integer == 3 && plain?["content-available"] == nil)
    }

    @Test("a topic token becomes a topic with the topic's limit")
    func topic() throws {
        let message = Messages.make { $0.body = String(repeating: "b", count: 4_000) }
        let request = FCMRequest.make(
            message, device: Messages.device(.fcm, token: "/topics/news"), settings: FCMSettings(url: "u"),
            accessToken: "a"
        )
        let json = try Messages.json(request)["message"]
        #expect(json?["topic"]?.string == "news")
        #expect(json?["token"] == nil)
        #expect((1_900...2_048).contains(try Messages.fcmSize(request)))
    }

    @Test("a notification read elsewhere is removed with data only")
    func retraction() throws {
        var message = Messages.make {
            $0.collapseKey = "k"
            $0.expiresAt = Messages.now + .seconds(5)
        }
        message.purpose = .retract
        #expect(
            Messages.text(Messages.fcm(message))
                == #"{"message":{"token":"tok\"en","data":{"type":"greeting","retract":"k","#
                + #""notification_id":"01a1f866-0d7b-841c-a9a6-5597aa0575f3","created_at":"2026-11-20T10:00:00.000Z"},"#
                + #""android":{"priority":"NORMAL","ttl":"86400s"},"#
                + #""apns":{"headers":{"apns-priority":"5","apns-push-type":"background","apns-expiration":"0"},"#
                + #""payload":{"aps":{"content-available":1}}}}}"#)
    }

    @Test("a retraction has the id even if the app's shape lacks it")
    func retractionOfShape() throws {
        var message = Messages.make { $0.collapseKey = "k" }
        message.purpose = .retract
        for (key, source) in [("story", "entity_id"), ("retract", "type")] {
            let shape = try PushShape(members: [(key, [source])])
            let request = FCMRequest.make(
                message, device: Messages.device(.fcm, token: "t"), settings: FCMSettings(url: "u", shape: shape),
                accessToken: "a")
            let data = try Messages.json(request)["message"]?["data"]
            #expect(data?.object?.map(\.key) == ["retract", "notification_id", "created_at"])
            #expect(data?["retract"]?.string == "k")
            #expect(data?["notification_id"]?.string == Messages.id.description)
        }
    }

    @Test(
        "a retraction has the name that the job sets for the device's screen",
        arguments: [
            (.android, #"{"fcm":{"tag":"mine"}}"#, "mine"),
            (.android, #"{"fcm":{"tag":"other","android":{"notification":{"tag":"mine"}}}}"#, "mine"),
            (.android, #"{"fcm":{"apns":{"headers":{"apns-collapse-id":"mine"}}}}"#, Messages.id.description),
            (.ios, #"{"fcm":{"apns":{"headers":{"apns-collapse-id":"mine"}}}}"#, "mine"),
            (.ios, #"{"fcm":{"tag":"mine"}}"#, Messages.id.description),
        ] as [(Platform, String, String)])
    func ownName(platform: Platform, fields: String, name: String) throws {
        var device = Messages.device(.fcm, token: "t")
        device.platform = platform
        var message = Messages.make { $0.extras.platform = Array(fields.utf8) }
        func sent() throws -> JSONValue? {
            let request = FCMRequest.make(message, device: device, settings: FCMSettings(url: "u"), accessToken: "a")
            return try Messages.json(request)["message"]
        }
        let shown = try sent()
        let android = shown?["android"]?["notification"]
        let apple = shown?["apns"]?["headers"]?["apns-collapse-id"]?.string
        #expect((platform == .ios ? apple : android?["tag"]?.string) == name)
        // Without the time, a client cannot tell whether a newer one has taken the name.
        #expect((android?["event_time"] != nil) == (android?["tag"]?.string != Messages.id.description))
        message.purpose = .retract
        #expect(try sent()?["data"]?["retract"]?.string == name)
    }

    @Test("FCM gets a collapse key only from the job's own fields, because it stores four of them")
    func collapseKey() throws {
        func sent(_ platform: String?) throws -> String? {
            let message = Messages.make {
                $0.collapseKey = "k"
                $0.extras.platform = platform.map { Array($0.utf8) }
            }
            return try Messages.json(Messages.fcm(message))["message"]?["android"]?["collapse_key"]?.string
        }
        #expect(try sent(nil) == nil)
        #expect(try sent(#"{"fcm":{"android":{"collapse_key":"mine"}}}"#) == "mine")
    }

    @Test("organisations with the same collapse key have different names on the screen")
    func organisations() throws {
        var names: [String?] = []
        for (org, key) in [("", "bk"), ("a", "bk"), ("b", "bk"), ("ab", "k")] {
            var message = Messages.make {
                $0.org = org
                $0.collapseKey = key
            }
            let shown = try Messages.json(Messages.fcm(message))["message"]
            let name = shown?["android"]?["notification"]?["tag"]?.string
            names.append(name)
            #expect(shown?["apns"]?["headers"]?["apns-collapse-id"]?.string == name)
            let headers = try Messages.apns(message).headers
            #expect(headers.first { $0.name == "apns-collapse-id" }?.value == name)
            message.purpose = .retract
            #expect(try Messages.json(Messages.fcm(message))["message"]?["data"]?["retract"]?.string == name)
        }
        #expect(names.first == "bk")
        #expect(Set(names).count == 4)
        #expect(names.dropFirst().allSatisfy { $0?.utf8.count == 32 })
    }

    @Test(
        "Android and Apple devices behind FCM use one name, also in the retraction",
        arguments: ["order 5", "é", String(repeating: "k", count: 65), nil]
    )
    func names(key: String?) throws {
        var message = Messages.make { $0.collapseKey = key }
        let shown = try Messages.json(Messages.fcm(message))["message"]
        message.purpose = .retract
        let name = try #require(try Messages.json(Messages.fcm(message))["message"]?["data"]?["retract"]?.string)
        #expect(shown?["android"]?["notification"]?["tag"]?.string == name)
        #expect(shown?["apns"]?["headers"]?["apns-collapse-id"]?.string == name)
        // The time tells the newer of two messages with one name; a name that is the id is unique.
        let moment = shown?["android"]?["notification"]?["event_time"]?.string
        let expected: String? = key == nil ? nil : "2026-11-20T10:00:00.000Z"
        #expect(moment == expected)
    }
}
