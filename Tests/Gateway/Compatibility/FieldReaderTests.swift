// Carillon · FieldReaderTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Protocols
import Testing

@testable import HTTP

@Suite("Request bodies of compatibility routes", .timeLimit(.minutes(10)))
struct FieldReaderTests {
    private static let form = "application/x-www-form-urlencoded"

    private static func fields(_ json: String) throws -> FieldReader {
        FieldReader(lenient: try JSONParser.parse(Array(json.utf8)))
    }

    @Test(
        "reads JSON under any content type and a form under its own",
        arguments: [
            (#"{"a":"b c"}"#, "application/json"), (#"{"a":"b c"}"#, nil), (#"{"a":"b c"}"#, "text/plain"),
            (" \n{\"a\":\"b c\"}", form), ("a=b+c", form), ("a=b%20c", form + "; charset=UTF-8"),
        ]
    )
    func bodies(body: String, type: String?) throws {
        #expect(try FieldReader.parse(Array(body.utf8), contentType: type)["a"]?.string == "b c")
    }

    @Test(
        "refuses a body that is neither",
        arguments: [("a=b", "application/json"), ("{", form), ("a=%zz", form), ("a=1&a=2", form), ("a=%00", form)]
    )
    func refused(body: String, type: String) {
        #expect(throws: Problem.self) { try FieldReader.parse(Array(body.utf8), contentType: type) }
    }

    @Test("notes at most a hundred faults")
    func manyFaults() throws {
        var fields = FieldReader(lenient: .object((0..<1_000).map { JSONMember("x\($0)", .null) }))
        fields.allow(Set<String>())
        #expect(fields.faults.map(\.field) == (0..<100).map { "x\($0)" })
        fields.fault("y", "is missing")
        #expect(fields.faults.count == 100)
    }

    @Test("treats absent, null and empty fields alike and collects faults")
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

    @Test("reads a choice in any case and limits the number of ids")
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

    @Test("cuts text after whole Unicode scalars, as PostgreSQL does, and refuses what is not text")
    func cutText() throws {
        var fields = try Self.fields(#"{"long":"e\u0301😀x","exact":"abc","empty":"","odd":7}"#)
        #expect(fields.cutText("long", limit: 3) == "e\u{301}😀")
        #expect(fields.cutText("exact", limit: 3) == "abc")
        #expect(fields.cutText("empty", limit: 3) == nil)
        #expect(fields.cutText("absent", limit: 3) == nil)
        #expect(fields.faults.isEmpty)
        #expect(fields.cutText("odd", limit: 3) == nil)
        #expect(fields.faults.map(\.field) == ["odd"])
    }

    @Test("refuses to register an FCM topic as a token, but accepts the name of a registered one")
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

    @Test("limits a token to 2,048 characters, of printable ASCII when it is registered")
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
        "reads times of day",
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

@Suite("Pages by number", .timeLimit(.minutes(10)))
struct PageQueryTests {
    @Test(
        "reads offset and limit",
        arguments: [
            ("", PageQuery(offset: 0, limit: 20, unreadOnly: false)),
            ("offset=40&limit=5&unread_only=true", PageQuery(offset: 40, limit: 5, unreadOnly: true)),
            ("limit=1001&unread_only=0", PageQuery(offset: 0, limit: 1_000, unreadOnly: false)),
            ("offset=10000", PageQuery(offset: 10_000, limit: 20, unreadOnly: false)),
        ]
    )
    func byOffset(query: String, expected: PageQuery) throws {
        #expect(try PageQuery.byOffset(RequestQuery(query)) == expected)
    }

    @Test(
        "clamps page and page size as the old service did",
        arguments: [
            ("", PageQuery(offset: 0, limit: 20, unreadOnly: false)),
            ("page=3&pageSize=10&unreadOnly=True", PageQuery(offset: 20, limit: 10, unreadOnly: true)),
            ("page=0&pageSize=500", PageQuery(offset: 0, limit: 50, unreadOnly: false)),
            ("page=201&pageSize=50", PageQuery(offset: 10_000, limit: 50, unreadOnly: false)),
        ]
    )
    func byPage(query: String, expected: PageQuery) throws {
        #expect(try PageQuery.byPage(RequestQuery(query)) == expected)
    }

    @Test(
        "names the faulty parameter",
        arguments: [
            ("offset=-1", ["offset"]), ("offset=x&limit=0", ["offset", "limit"]), ("offset=10001", ["offset"]),
            ("unread_only=maybe", ["unread_only"]),
        ]
    )
    func offsetFaults(query: String, fields: [String]) {
        #expect(Self.faults { try PageQuery.byOffset(RequestQuery(query)) } == fields)
    }

    @Test(
        "names the faulty parameter",
        arguments: [
            ("page=x", ["page"]), ("page=202&pageSize=50", ["page"]), ("page=9223372036854775807", ["page"]),
            ("pageSize=0", ["pageSize"]), ("unreadOnly=maybe", ["unreadOnly"]),
        ]
    )
    func pageFaults(query: String, fields: [String]) {
        #expect(Self.faults { try PageQuery.byPage(RequestQuery(query)) } == fields)
    }

    private static func faults(_ body: () throws -> PageQuery) -> [String]? {
        do {
            _ = try body()
            return nil
        } catch {
            return (error as? Problem)?.faults.map(\.field)
        }
    }
}

@Suite("Error formats of each system", .timeLimit(.minutes(10)))
struct ErrorStyleTests {
    private static let faults = Problem(
        .unprocessableContent,
        "some fields are invalid",
        faults: [
            JobFault("fcm_token", "is missing"), JobFault("platform", "is missing"), JobFault("platform", "is odd"),
        ]
    )
    private static let text = "fcm_token is missing; platform is missing; platform is odd"

    private static func value(_ problem: Problem, _ style: ErrorStyle) throws -> JSONValue {
        try JSONParser.parse(style.body(of: problem))
    }

    @Test("describes the error in detail, error and message in every style")
    func texts() throws {
        for style in [ErrorStyle.hybrid, .allowance, .news, .tasks, .edge] {
            let value = try Self.value(Self.faults, style)
            for key in ["detail", "error", "message"] { #expect(value[key]?.string == Self.text) }
            #expect(value["status"]?.integer == Int64(style.invalid.code))
            let plain = try Self.value(Problem(.notFound, "not found"), style)
            #expect(plain["detail"]?.string == "not found")
            #expect(plain["status"]?.integer == 404)
            #expect(plain["errors"] == nil)
        }
    }

    @Test("answers faulty fields with 422 in place of FastAPI and 400 elsewhere, and keeps other statuses")
    func statuses() {
        #expect(ErrorStyle.hybrid.status(of: Self.faults) == .unprocessableContent)
        #expect(ErrorStyle.news.status(of: Self.faults) == .unprocessableContent)
        for style in [ErrorStyle.allowance, .tasks, .edge] {
            #expect(style.status(of: Self.faults) == .badRequest)
            #expect(style.status(of: Problem(.serviceUnavailable, "later", retryAfter: 2)) == .serviceUnavailable)
        }
    }

    @Test("writes errors by field for ASP.NET, as PostgREST members for the edge scheduler, as a list elsewhere")
    func members() throws {
        let grouped = try Self.value(Self.faults, .allowance)["errors"]
        #expect(grouped?["fcm_token"]?.strings == ["is missing"])
        #expect(grouped?["platform"]?.strings == ["is missing", "is odd"])
        let list = try Self.value(Self.faults, .hybrid)["errors"]?.array
        #expect(list?.compactMap { $0["field"]?.string } == ["fcm_token", "platform", "platform"])
        let edge = try Self.value(Self.faults, .edge)
        #expect(edge["code"]?.string == "PGRST102")
        #expect(edge["details"] == .null)
        #expect(edge["hint"] == .null)
    }

    @Test(
        "applies to the longest path above a request",
        arguments: [
            ("/api/push", "socketio-hybrid"), ("/api/push/apns/7", "task-reminders"),
            ("/api/push/apns-token", "socketio-hybrid"), ("/api/v1/devices/7", "allowance"), ("/api/v1", nil),
            ("/rest/v1/tokens", "edge-scheduler"), ("/v1/inbox", nil),
        ]
    )
    func paths(path: String, system: String?) {
        #expect(ErrorStyle.of(path)?.system == system)
    }

    @Test("groups many faults in the order of their fields")
    func manyFaults() throws {
        let faults = (0..<20_000).map { JobFault("f\($0 % 10_000)", $0 < 10_000 ? "is odd" : "is old") }
        let errors = try Self.value(Problem(.badRequest, "invalid", faults: faults), .allowance)["errors"]
        #expect(errors?.object?.map(\.key) == (0..<10_000).map { "f\($0)" })
        #expect(errors?["f9999"]?.strings == ["is odd", "is old"])
    }

    @Test(
        "takes PostgREST's code from the status unless the error has its own",
        arguments: [
            (401, "PGRST301"), (403, "42501"), (405, "PGRST117"), (406, "PGRST116"), (409, "23505"),
            (429, "429"), (500, "XX000"), (503, "PGRST000"),
        ]
    )
    func codes(status: Int, code: String) throws {
        let status = HTTPResponse.Status(code: status)
        #expect(try Self.value(Problem(status, "no"), .edge)["code"]?.string == code)
        let own = try Self.value(Problem(status, "no", code: "42703", details: "Results contain 0 rows"), .edge)
        #expect(own["code"]?.string == "42703")
        #expect(own["details"]?.string == "Results contain 0 rows")
    }
}
