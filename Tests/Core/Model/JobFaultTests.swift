// Carillon · JobFaultTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Invalid jobs", .timeLimit(.minutes(10)))
struct JobFaultTests {
    private static let time = "must be an RFC 3339 time such as 2026-11-20T10:00:00Z"
    private static let usersRule = "must be a JSON array of 1 to 1000 strings"
    private static let marks = String(repeating: "\u{300}", count: 65)

    @Test(
        "each fault names its field and the rule",
        arguments: [
            (["colour": "red"], ["colour: is not a field of a job; see docs/jobs.md"]),
            (["type": nil], ["type: is missing"]),
            (["type": ""], ["type: is empty"]),
            (["user": nil], ["user: give one of user, users, topic, all"]),
            (["user": ""], ["user: is empty"]),
            (["user": "a", "users": #"["b"]"#], ["user: give only one of user, users"]),
            (["user": "a", "all": "true"], ["user: give only one of user, all"]),
            (["all": "no"], ["all: must be true"]),
            (["users": "[]"], ["users: \(usersRule)"]),
            (["users": "u1"], ["users: is not valid JSON at byte 0"]),
            (["users": #""u1""#], ["users: \(usersRule)"]),
            (["users": #"["a",1]"#], ["users: \(usersRule)"]),
            (["users": #"["a",""]"#], ["users[1]: is empty"]),
            (["users": #"["a",null]"#], ["users: \(usersRule)"]),
            (["except": "[]"], ["except: \(usersRule)"]),
            (["id": ""], ["id: is empty"]),
            (["data": "{"], ["data: is not valid JSON at byte 1"]),
            (["data": "[1]"], ["data: must be a JSON object"]),
            (["data": #"{"a":1,"a":2}"#], ["data: is JSON with a key that occurs twice at byte 7"]),
            (["data": #"{"a":"\u0000"}"#], ["data: is JSON with the character U+0000 at byte 12"]),
            (["data": #"{"a":"\ud83d"}"#], ["data: is JSON with a lone surrogate at byte 12"]),
            (["users": #"["\ud83d"]"#], ["users: is JSON with a lone surrogate at byte 8"]),
            (
                ["data": "{\"a\(marks)\":1}"],
                ["data: is JSON with more than 64 combining marks in a row at byte 1"]
            ),
            (["title": "a\(marks)"], ["title: has more than 64 combining marks in a row"]),
            (["user": "a\(marks)"], ["user: has more than 64 combining marks in a row"]),
            (["platform": "null"], ["platform: must be a JSON object"]),
            (["severity": "fatal"], ["severity: must be one of alert, warning, info"]),
            (["severity": "Alert"], ["severity: must be one of alert, warning, info"]),
            (["delivery": "email"], ["delivery: must be one of push, in_app"]),
            (["lane": "slow"], ["lane: must be one of critical, normal, bulk"]),
            (["channels": "[]"], ["channels: must be a JSON array out of in_app, push, email"]),
            (["channels": #"["sms"]"#], ["channels: must be a JSON array out of in_app, push, email"]),
            (["channels": #"["push",1]"#], ["channels: must be a JSON array out of in_app, push, email"]),
            (["channels": "push"], ["channels: is not valid JSON at byte 0"]),
            (["expires_at": "tomorrow"], ["expires_at: \(time)"]),
            (["keep_until": "2026-02-30T00:00:00Z"], ["keep_until: \(time)"]),
            (["badge": "many"], ["badge: must be a whole number from 0 to 99999"]),
            (["badge": "-1"], ["badge: must be a whole number from 0 to 99999"]),
            (["badge": "100000"], ["badge: must be a whole number from 0 to 99999"]),
            (["badge": "1.5"], ["badge: must be a whole number from 0 to 99999"]),
            (["badge": "0x10"], ["badge: must be a whole number from 0 to 99999"]),
            (["badge": "+5"], ["badge: must be a whole number from 0 to 99999"]),
            (["badge": "5."], ["badge: must be a whole number from 0 to 99999"]),
            (["badge": "1.0"], []),
            (["push_priority": "urgent"], ["push_priority: must be one of high, normal"]),
            (["template": ""], ["template: is empty"]),
            (["vars": "[]"], ["vars: must be a JSON object"]),
            (["digest": ""], ["digest: is empty"]),
            (["deliver_at": "soon"], ["deliver_at: must be an RFC 3339 time such as 2026-11-20T10:00:00Z"]),
            (
                ["deliver_local": "25:00"],
                ["deliver_local: must be a time of day such as 08:30, or a day with it such as 2027-01-01T08:30"]
            ),
            (
                ["deliver_at": "2026-11-20T10:00:00Z", "deliver_local": "10:00"],
                ["deliver_local: excludes deliver_at"]
            ),
            (
                ["deliver_at": "2026-11-20T10:00:00+01:00", "expires_at": "2026-11-20T09:00:00Z"],
                ["expires_at: must be after deliver_at"]
            ),
            (
                ["deliver_at": "2026-11-20T10:00:00Z", "keep_until": "2026-11-20T09:59:59Z"],
                ["keep_until: must be after deliver_at"]
            ),
            (["deliver_at": "2026-11-20T10:00:00+01:00", "expires_at": "2026-11-20T09:00:01Z"], []),
            (["event": ""], ["event: is empty"]),
            (["event": "e", "args": "{}"], ["args: must be a JSON array"]),
            (["event": "e", "args": "["], ["args: is not valid JSON at byte 1"]),
            (["event": "e", "type": "t"], ["type: cannot be combined with event"]),
            (
                ["event": "e", "lane": "slow", "colour": "red", "data": "{"],
                [
                    "lane: cannot be combined with event", "data: cannot be combined with event",
                    "colour: is not a field of a job; see docs/jobs.md",
                ]
            ),
            (["event": "e", "id": "i", "org": "o", "except": #"["a"]"#, "traceparent": "t"], []),
            (["args": "[]"], ["args: is not a field of a job; see docs/jobs.md"]),
        ] as [(KeyValuePairs<String, String?>, [String])]
    )
    func faults(fields: KeyValuePairs<String, String?>, expected: [String]) {
        #expect(JobEntry(fields).faults == expected)
    }

    private static let idRule = "must be a string or a whole number"

    @Test(
        "a member of a JSON object must have its type",
        arguments: [
            (#""user":5,"type":"t","id":-7,"org":0,"entity_id":18446744073709551616"#, []),
            (#""user":true,"type":"t""#, ["user: \(idRule)"]),
            (
                #""user":{},"type":"t","id":["x"],"org":{"a":1},"entity_id":1.0"#,
                ["user: \(idRule)", "entity_id: \(idRule)", "id: \(idRule)", "org: \(idRule)"]
            ),
            (#""user":"u","type":"t","id":1e3"#, ["id: \(idRule)"]),
            (#""users":"[\"jj\"]","type":"t""#, ["users: \(usersRule)"]),
            (#""users":["a",5],"type":"t""#, ["users: \(usersRule)"]),
            (#""all":true,"type":"t""#, []), (#""all":1,"type":"t""#, ["all: must be true"]),
            (#""all":"true","type":"t""#, ["all: must be true"]),
            (#""topic":5,"type":"t""#, ["topic: must be a string"]),
            (#""user":"u","event":"e","args":"[]""#, ["args: must be a JSON array"]),
            (#""user":"u","event":["e"],"args":[]"#, ["event: must be a string"]),
            (#""user":"u","type":"t","title":null,"data":null,"badge":null,"all":null"#, []),
            (#""user":"u","type":"t","badge":1,"channels":["push"],"data":{},"vars":{}"#, []),
            (#""user":"u","type":"t","badge":" 1""#, ["badge: must be a whole number"]),
            (#""user":"u","type":"t","badge":1.5"#, ["badge: must be a whole number from 0 to 99999"]),
            (
                #""user":"u","type":"t","data":"{}","vars":"{}","platform":"{}""#,
                ["data", "vars", "platform"].map { "\($0): must be a JSON object" }
            ),
            (
                #""user":"u","type":"t","channels":"[\"push\"]""#,
                ["channels: must be a JSON array out of in_app, push, email"]
            ),
            (
                #""user":"u","title":5,"colour":true"#,
                ["type: is missing", "title: must be a string", "colour: is not a field of a job; see docs/jobs.md"]
            ),
        ] as [(String, [String])]
    )
    func types(members: String, expected: [String]) throws {
        #expect(try JobEntry(json: "{\(members)}").faults == expected)
    }

    @Test(
        "only a string is a text",
        arguments: [
            "type", "title", "body", "category", "collapse_key", "entity_type", "url", "image", "sound", "state",
            "severity", "delivery", "lane", "push_priority", "expires_at", "keep_until", "template", "digest",
            "deliver_at", "deliver_local",
        ]
    )
    func texts(field: String) throws {
        let others = #""user":"u""# + (field == "type" ? "" : #","type":"t""#)
        for value in ["true", "1", #"["a"]"#, #"{"en":"a"}"#] {
            let entry = try JobEntry(json: "{\(others),\"\(field)\":\(value)}")
            #expect(entry.faults == ["\(field): must be a string"])
        }
    }

    private static let addressRule = "must be an ASCII address such as help@example.com, without a name"
    private static let apnsMembers =
        "aps, category, content_available, filter_criteria, interruption_level, launch_image, loc_args, loc_key, "
        + "mutable_content, priority, push_type, relevance_score, sound, subtitle, subtitle_loc_args, subtitle_loc_key, "
        + "target_content_id, thread_id, title_loc_args, title_loc_key"

    @Test(
        "refuses a member of platform that no provider reads",
        arguments: [
            (#"{"ios":{"sound":"x"}}"#, "ios: is not a provider; give one of fcm, apns, webpush, email, webhook"),
            (#"{"apns":"x"}"#, "apns: must be a JSON object"),
            (#"{"apns":{"thread":"t"}}"#, "apns.thread: is not a member here; give one of \(apnsMembers)"),
            (#"{"apns":{"push_type":"liveactivity"}}"#, "apns.push_type: must be one of alert, background"),
            (#"{"apns":{"priority":7}}"#, "apns.priority: must be one of 1, 5, 10"),
            (#"{"apns":{"aps":[]}}"#, "apns.aps: must be a JSON object"),
            (#"{"apns":{"mutable_content":2}}"#, "apns.mutable_content: must be true, false, 1 or 0"),
            (#"{"apns":{"content_available":"1"}}"#, "apns.content_available: must be true, false, 1 or 0"),
            (#"{"fcm":{"android":1}}"#, "fcm.android: must be a JSON object"),
            (#"{"webpush":{"urgency":"now"}}"#, "webpush.urgency: must be one of very-low, low, normal, high"),
            (#"{"webpush":{"icon":"x"}}"#, "webpush.icon: is not a member here; give one of options, urgency"),
            (
                #"{"email":{"cc":"x"}}"#,
                "email.cc: is not a member here; give one of html, reply_to, subject, text"
            ),
            (#"{"email":{"subject":1}}"#, "email.subject: must be text"),
            (#"{"email":{"reply_to":"Support <help@example.com>"}}"#, "email.reply_to: \(addressRule)"),
            (#"{"email":{"reply_to":"a@example.com\r\nBcc: b@example.com"}}"#, "email.reply_to: \(addressRule)"),
            (#"{"email":{"reply_to":["help@example.com"]}}"#, "email.reply_to: \(addressRule)"),
            (#"{"webhook":{"x":1}}"#, "webhook.x: is not a member here; nothing can be set for webhook"),
        ])
    func platform(text: String, fault: String) {
        #expect(JobEntry(["platform": text]).faults == ["platform.\(fault)"])
    }

    @Test("platform reports up to sixteen faults, and null is always allowed")
    func platformFaults() {
        let many = (0..<100).map { #""x\#($0)":1"# }.joined(separator: ",")
        #expect(JobEntry(["platform": #"{"apns":{\#(many)}}"#]).faults.count == 16)
        let nulls = #"{"apns":{"sound":null,"priority":null,"mutable_content":null},"fcm":null}"#
        #expect(JobEntry(["platform": nulls]).faults.isEmpty)
        #expect(JobEntry(["platform": #"{"email":{"reply_to":"help@example.com"}}"#]).faults.isEmpty)
    }

    @Test(
        "refuses links that run or show their own content",
        arguments: ["javascript", "JavaScript", "vbscript", "data", "blob", "file"])
    func scheme(scheme: String) {
        let fault =
            "url: must not be a \(scheme.lowercased()): URL; give a path, an https:// URL or a link into the app"
        #expect(JobEntry(["url": "\(scheme):alert(1)"]).faults == [fault])
    }

    @Test(
        "accepts a path or a URL of any scheme that leads somewhere",
        arguments: [
            ("/invoices/i9?x=javascript:1", true), ("https://example.org/a", true), ("app://i9", true),
            ("mailto:a@b.c", true), ("stories/9", true), ("#part", true), (" javascript:alert(1)", false),
            ("java\tscript:alert(1)", false), ("https://a.b/c d", true), ("\u{1}javascript:alert(1)", false),
            ("java script:alert(1)", true), ("/a ", false),
        ])
    func link(text: String, isTaken: Bool) {
        let expected =
            isTaken
            ? []
            : [
                "url: must be a URL without control characters, and without blanks at its ends"
            ]
        #expect(JobEntry(["url": text]).faults == expected)
    }

    @Test(
        "an image needs an address that a device can fetch",
        arguments: [
            ("https://example.org/i.png", true), ("HTTP://example.org", true), ("https://example.org:8443/é.png", true),
            ("i.png", false), ("/i.png", false), ("https://", false), ("https:///i.png", false), ("https://?x", false),
            ("ftp://example.org/i.png", false), ("data:image/png;base64,AA==", false), ("https://a.b/c d", false),
        ])
    func image(text: String, isTaken: Bool) {
        let expected = isTaken ? [] : ["image: must be an https:// URL (or http://) that the device can fetch"]
        #expect(JobEntry(["image": text]).faults == expected)
        let long = "https://example.org/" + String(repeating: "ö", count: 2_029)
        #expect(JobEntry(["image": long]).faults == ["image: is longer than 2048 characters"])
    }

    @Test("reports all faults at once")
    func allAtOnce() {
        let entry = JobEntry([
            "user": "a", "users": "[]", "type": nil, "data": "x", "severity": "y", "badge": "z", "unknown": "",
            "id": "",
        ])
        #expect(
            Set(entry.faults.map { $0.prefix { $0 != ":" } }) == [
                "user", "type", "data", "severity", "badge", "unknown", "id",
            ]
        )
    }

    @Test("a duplicate field is a fault, even with the same value")
    func twice() {
        var entry = JobEntry(["title": "x"])
        entry.append("title", Array("x".utf8))
        #expect(entry.faults == ["title: occurs twice"])
    }

    @Test("too many fields are one fault")
    func many() {
        func entry(_ count: Int) -> JobEntry {
            var entry = JobEntry()
            for number in 0..<count - 2 { entry.append("x\(number)", []) }
            return entry
        }
        #expect(entry(64).faults.count == 62)
        #expect(entry(65).faults == ["fields: are more than 64"])
    }

    @Test(
        "NUL and invalid UTF-8 are faults in every text",
        arguments: [
            "user", "id", "org", "type", "title", "body", "category", "collapse_key", "entity_type", "entity_id", "url",
            "image", "sound", "state", "severity", "delivery", "lane", "expires_at", "keep_until", "badge", "template",
            "digest", "deliver_at", "deliver_local",
        ]
    )
    func bytes(field: String) {
        #expect(JobEntry(field, bytes: [0x61, 0x00]).faults == ["\(field): holds the character U+0000"])
        for bytes: [UInt8] in [[0xFF], [0x61, 0xC3], [0xED, 0xA0, 0x80], [0xC0, 0x80]] {
            #expect(JobEntry(field, bytes: bytes).faults == ["\(field): is not valid UTF-8"])
        }
    }

    @Test(
        "invalid UTF-8 is a fault in every JSON field",
        arguments: ["data", "platform", "channels", "except", "vars"]
    )
    func jsonBytes(field: String) {
        #expect(JobEntry(field, bytes: [0x22, 0xFF, 0x22]).faults == ["\(field): is not valid UTF-8 at byte 0"])
        #expect(JobEntry(field, bytes: [0x22, 0x00, 0x22]).faults == ["\(field): is not valid JSON at byte 1"])
    }

    @Test("users in JSON follow the rules of a user")
    func usersInJSON() {
        let long = String(repeating: "u", count: 129)
        #expect(JobEntry(["users": "[\"\(long)\"]"]).faults == ["users[0]: is longer than 128 characters"])
        #expect(JobEntry(["users": #"["a\u0000"]"#]).faults == ["users: is JSON with the character U+0000 at byte 9"])
        let many = Array(repeating: "\"u\"", count: 1_001).joined(separator: ",")
        #expect(JobEntry(["users": "[\(many)]"]).faults == ["users: \(Self.usersRule)"])
    }

    @Test(
        "refuses a megabyte in every field without repeating it",
        arguments: [
            "user", "title", "body", "data", "channels", "id", "type", "severity", "expires_at", "strange", "template",
            "digest", "vars", "platform",
        ]
    )
    func megabyte(field: String) {
        let faults = JobEntry(field, bytes: [UInt8](repeating: UInt8(ascii: "q"), count: 1 << 20)).faults
        #expect(faults.count == 1)
        #expect(faults.allSatisfy { $0.hasPrefix(field) && $0.utf8.count < 200 && !$0.contains("qq") })
    }

    @Test(
        "each text may have exactly as many characters as its limit",
        arguments: [
            ("user", 128), ("topic", 128), ("id", 128), ("org", 128), ("type", 128), ("title", 255), ("body", 4_096),
            ("template", 128), ("digest", 128), ("event", 128), ("entity_type", 128), ("entity_id", 128),
            ("category", 128), ("collapse_key", 64), ("url", 2_048), ("sound", 128), ("state", 128),
        ]
    )
    func textLimit(field: String, limit: Int) {
        func faults(_ length: Int) -> [String] { JobEntry([field: String(repeating: "ö", count: length)]).faults }
        #expect(faults(limit).isEmpty)
        #expect(faults(limit + 1) == ["\(field): is longer than \(limit) characters"])
    }

    @Test("a list of users may have a megabyte and no more")
    func megabyteOfUsers() {
        let bytes = [UInt8](repeating: UInt8(ascii: " "), count: (1 << 20) + 1)
        #expect(JobEntry("users", bytes: bytes).faults.contains("users: is longer than 1048576 bytes"))
    }

    @Test("JSON may have 16 KiB and no more", arguments: ["data", "platform", "vars", "args"])
    func jsonLimit(field: String) {
        let isList = field == "args"
        func faults(_ size: Int) -> [String] {
            let isPlatform = field == "platform"
            let head = isList ? "[\"" : isPlatform ? #"{"email":{"text":""# : "{\"a\":\""
            let tail = isList ? "\"]" : isPlatform ? "\"}}" : "\"}"
            let text = String(repeating: "x", count: size - head.utf8.count - tail.utf8.count)
            var entry = isList ? JobEntry(["event": "e"]) : JobEntry()
            entry.append(field, Array((head + text + tail).utf8))
            return entry.faults
        }
        #expect(faults(16_384).isEmpty)
        #expect(faults(16_385) == ["\(field): is longer than 16384 bytes"])
    }

    @Test("an exponent counts as the digits that it stands for", arguments: ["data", "vars", "args"])
    func exponents(field: String) {
        func faults(_ number: String, _ count: Int) -> [String] {
            let list = "[" + Array(repeating: number, count: count).joined(separator: ",") + "]"
            var entry = field == "args" ? JobEntry(["event": "e"]) : JobEntry()
            entry.append(field, Array((field == "args" ? list : "{\"a\":\(list)}").utf8))
            return entry.faults
        }
        let fault = "\(field): is longer than 16384 bytes with exponents written out (1e3 as 1000)"
        for number in ["1e308", "1e-308"] {
            #expect(faults(number, 50).isEmpty)
            #expect(faults(number, 54) == [fault])
        }
        // PostgreSQL refuses numbers with more than 16,383 digits after the point.
        #expect(faults("0." + String(repeating: "1", count: 16_090) + "e-308", 1) == [fault])
    }

    @Test("JSON may have 56 levels and no more", arguments: ["data", "vars", "args"])
    func jsonDepth(field: String) {
        func faults(_ depth: Int) -> [String] {
            let count = field == "args" ? depth : depth - 1
            let list = String(repeating: "[", count: count) + "1" + String(repeating: "]", count: count)
            var entry = field == "args" ? JobEntry(["event": "e"]) : JobEntry()
            entry.append(field, Array((field == "args" ? list : "{\"a\":\(list)}").utf8))
            return entry.faults
        }
        #expect(faults(56).isEmpty)
        #expect(faults(57) == ["\(field): is nested deeper than 56"])
    }

    @Test("truncates an unknown field name")
    func longName() {
        let name = String(repeating: "n", count: 1 << 20)
        let expected = String(repeating: "n", count: 64) + ": is not a field of a job; see docs/jobs.md"
        #expect(JobEntry([name: "x"]).faults == [expected])
    }

    @Test("all faults form one line")
    func describes() {
        let faults = JobFaults([JobFault("a", "is empty"), JobFault("b", "is missing")])
        #expect(faults.description == "a: is empty; b: is missing")
    }
}
