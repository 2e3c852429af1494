// Carillon · RequestFieldsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import HTTP

@Suite("Bodies as clients send them", .timeLimit(.minutes(10)))
struct RequestFieldsTests {
    private static let form = "application/x-www-form-urlencoded"

    private static func fields(_ json: String) throws -> RequestFields {
        RequestFields(try JSONParser.parse(Array(json.utf8)))
    }

    @Test(
        "JSON is read under any content type, a form under its own",
        arguments: [
            (#"{"a":"b c"}"#, "application/json"), (#"{"a":"b c"}"#, nil), (#"{"a":"b c"}"#, "text/plain"),
            (" \n{\"a\":\"b c\"}", form), ("a=b+c", form), ("a=b%20c", form + "; charset=UTF-8"),
        ]
    )
    func bodies(body: String, type: String?) throws {
        #expect(try RequestFields.parse(Array(body.utf8), contentType: type)["a"]?.string == "b c")
    }

    @Test(
        "What is neither is refused",
        arguments: [("a=b", "application/json"), ("{", form), ("a=%zz", form), ("a=1&a=2", form), ("a=%00", form)]
    )
    func refused(body: String, type: String) {
        #expect(throws: Problem.self) { try RequestFields.parse(Array(body.utf8), contentType: type) }
    }

    @Test("Fields: absent, null and empty text are the same; faults are collected")
    func fields() throws {
        var fields = try Self.fields(
            #"{"text":"x","empty":"","none":null,"number":12,"digits":"12","yes":true,"on":"1","odd":[],"long":"xyz"}"#
        )
        #expect(fields.text("text", limit: 1) == "x")
        #expect(fields.text("empty", limit: 1) == nil)
        #expect(fields.text("none", limit: 1) == nil)
        #expect(fields.integer("number") == 12)
        #expect(fields.integer("digits") == 12)
        #expect(fields.flag("yes") == true)
        #expect(fields.flag("on") == true)
        #expect(fields.flag("absent") == nil)
        #expect(fields.faults.isEmpty)
        _ = fields.text("long", limit: 2)
        _ = fields.text("odd", limit: 2)
        _ = fields.text("absent", limit: 2, isRequired: true)
        _ = fields.integer("text")
        _ = fields.flag("text")
        _ = fields.choice("text", of: Platform.self)
        #expect(fields.faults.map(\.field) == ["long", "odd", "absent", "text", "text", "text"])
        #expect(throws: Problem.self) { try fields.finish() }
    }

    @Test("A choice is read in any case; ids must be ids, and at most as many as allowed")
    func values() throws {
        let id = "01a1f866-0d7b-841c-a9a6-5597aa0575f3"
        var fields = try Self.fields(#"{"platform":"iOS","ids":["\#(id)"],"bad":["\#(id)","x"],"text":"x"}"#)
        #expect(fields.choice("platform", of: Platform.self) == .ios)
        #expect(fields.notifications("ids")?.map(\.description) == [id])
        #expect(fields.notifications("absent") == nil)
        #expect(fields.faults.isEmpty)
        #expect(fields.notifications("bad") == nil)
        #expect(fields.notifications("text") == nil)
        #expect(fields.notifications("ids", limit: 0) == nil)
        #expect(fields.faults.map(\.field) == ["bad", "text", "ids"])
    }

    @Test("A topic of FCM's cannot be registered as a token, but one that was can be named")
    func topics() throws {
        var fields = try Self.fields(#"{"a":"/topics/news","b":"phone:/topics/","c":"/topic"}"#)
        #expect(fields.token("a") == "/topics/news")
        #expect(fields.newToken("b") == "phone:/topics/")
        #expect(fields.newToken("c") == "/topic")
        #expect(fields.faults.isEmpty)
        _ = fields.newToken("a")
        _ = fields.newToken("absent", isRequired: false)
        #expect(fields.faults.map(\.field) == ["a"])
    }

    @Test("A token has at most 2,048 characters, of printable ASCII where it is registered")
    func tokens() throws {
        let long = String(repeating: "x", count: 2_048)
        var fields = try Self.fields(#"{"long":"\#(long)","longer":"\#(long)x","accent":"é","line":"a\nb"}"#)
        #expect(fields.newToken("long") == long)
        #expect(fields.token("accent") == "é")
        #expect(fields.faults.isEmpty)
        for name in ["longer", "accent", "line"] { _ = fields.newToken(name) }
        _ = fields.token("longer")
        #expect(fields.faults.map(\.field) == ["longer", "accent", "line", "longer"])
    }

    @Test(
        "Times of day",
        arguments: [
            ("22:00", 1_320), ("07:30:00", 450), ("00:00:00.0000000", 0), ("24:00", nil), ("7:30", nil), ("07:60", nil),
            ("07:30:15", nil), ("07", nil), ("+7:30", nil), ("", nil), ("07:30:", nil),
        ] as [(String, Int?)]
    )
    func clock(text: String, minutes: Int?) {
        #expect(WallClock.minutes(text) == minutes)
        if let minutes { #expect(WallClock.minutes(WallClock.text(minutes)) == minutes) }
    }
}
