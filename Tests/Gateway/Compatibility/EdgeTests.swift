// Carillon · EdgeTests.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import Protocols
import Storage
import Testing

@testable import Core
@testable import HTTP

@Suite("The edge scheduler's token table", .timeLimit(.minutes(10)))
struct EdgeTests {
    private static let apnsToken = String(repeating: "aB", count: 32)

    private static func row(
        _ token: String, _ platform: Platform, of user: String = "u1", deviceID: String? = nil, at second: Int64
    ) -> EdgeRow {
        var device = Device(
            id: NotificationID(high: 0x01A1_F866_0D7B_441C, low: 0x8000_0000_0000_0000 + UInt64(second)),
            user: user,
            platform: platform,
            provider: platform == .ios ? .apns : .fcm,
            app: "default",
            environment: .production,
            token: token,
            registeredAt: Timestamp(seconds: 1_795_168_800 + second)
        )
        device.deviceID = deviceID
        if deviceID != nil {
            device.appVersion = "2.1"
            device.locale = "de-CH"
        }
        // Its token is newer than its row.
        device.registeredAt = device.registeredAt + .seconds(30)
        device.lastUsedAt = Timestamp(seconds: 1_795_168_860 + second)
        return EdgeRow(device: device)
    }

    private static let rows = [
        Self.row("a1", .ios, deviceID: "D1", at: 0), Self.row("b2", .android, at: 1), Self.row("c3", .ios, at: 2),
    ]

    private static func tokens(_ query: String) throws -> [String] {
        let query = try EdgeQuery(RequestQuery.fields(query))
        return query.page(query.matching(Self.rows)).map(\.device.token)
    }

    @Test("returns a row with all columns or the selected ones")
    func columns() throws {
        var writer = JSONWriter()
        Self.rows[0].write(try EdgeQuery([]).columns, to: &writer)
        #expect(
            String(decoding: writer.bytes, as: UTF8.self)
                == #"{"id":"01a1f866-0d7b-441c-8000-000000000000","user_id":"u1","platform":"ios","token":"a1","#
                + #""device_id":"D1","app_version":"2.1","locale":"de-CH","last_seen_at":"2026-11-20T10:01:00.000Z","#
                + #""created_at":"2026-11-20T10:00:00.000Z","updated_at":"2026-11-20T10:01:00.000Z"}"#)
        writer = JSONWriter()
        Self.rows[1].write(try EdgeQuery(RequestQuery.fields("select=token, device_id")).columns, to: &writer)
        #expect(String(decoding: writer.bytes, as: UTF8.self) == #"{"token":"b2","device_id":null}"#)
    }

    @Test(
        "reads filters, order and pages",
        arguments: [
            ("", ["a1", "b2", "c3"]), ("select=*", ["a1", "b2", "c3"]), ("token=eq.b2", ["b2"]),
            ("created_at=not.is.null&token=in.(a1,b2)&token=eq.b2", ["b2"]), ("platform=eq.ios", ["a1", "c3"]),
            ("platform=eq.ios&token=eq.c3", ["c3"]), ("token=eq.C3", ["c3"]), ("token=in.(A1,B2)", ["a1"]),
            ("token=in.(a1,\"c3\")", ["a1", "c3"]), ("device_id=is.null", ["b2", "c3"]),
            ("device_id=not.is.null", ["a1"]), ("app_version=eq.2.1", ["a1"]), ("locale=in.(de-CH,fr)", ["a1"]),
            ("user_id=eq.other", []), ("user_id=eq.U1", []), ("id=eq.01A1F866-0D7B-441C-8000-000000000002", ["c3"]),
            ("order=created_at.desc", ["c3", "b2", "a1"]), ("order=platform.asc,token.desc", ["b2", "c3", "a1"]),
            ("order=device_id,token", ["a1", "b2", "c3"]), ("order=device_id.desc,token", ["b2", "c3", "a1"]),
            ("order=device_id.asc.nullsfirst,token", ["b2", "c3", "a1"]),
            ("order=device_id.desc.nullslast,token", ["a1", "b2", "c3"]),
            ("order=device_id.asc.nullslast&limit=1", ["a1"]), ("limit=1&offset=1", ["b2"]), ("offset=9", []),
            ("on_conflict=user_id,platform,token", ["a1", "b2", "c3"]),
        ]
    )
    func queries(query: String, tokens: [String]) throws {
        #expect(try Self.tokens(query) == tokens)
    }

    @Test(
        "refuses and names unknown parameters",
        arguments: [
            ("token=like.a*", ["token"]), ("token=a1", ["token"]), ("name=eq.x", ["name"]),
            ("select=secret", ["select"]), ("select=token,token", ["select"]), ("select=id, id", ["select"]),
            ("order=secret.asc", ["order"]), ("order=token.up", ["order"]), ("limit=-1&offset=x", ["limit", "offset"]),
            ("or=(token.eq.a1)", ["or"]), ("select=", ["select"]), ("select=id,", ["select"]), ("order=", ["order"]),
            ("select=id&select=token&limit=", ["select", "limit"]), ("token=in.(\"a1)", ["token"]),
            ("token=in.(\"a\"1)", ["token"]), ("token=in.(\"a\\1\")", ["token"]),
            ("order=token,created_at.desc,token.desc", ["order"]),
        ]
    )
    func faults(query: String, names: [String]) {
        do {
            _ = try EdgeQuery(RequestQuery.fields(query))
            Issue.record("not refused")
        } catch {
            let problem = error as? Problem
            #expect(problem?.faults.map(\.field) == names)
            #expect(problem?.code == (["name", "or"].contains(names[0]) ? "42703" : "PGRST100"))
        }
    }

    @Test("takes a hundred filters and a hundred values in a list, and refuses more by name")
    func limits() throws {
        func reasons(_ query: String) throws -> [String]? {
            let fields = try RequestQuery.fields(query)
            return Self.problem { _ = try EdgeQuery(fields) }?.faults.map { "\($0.field) \($0.reason)" }
        }
        func values(_ count: Int) -> String {
            "token=in.(" + (0..<count).map { "t\($0)" }.joined(separator: ",") + ")"
        }
        func filters(_ count: Int) -> String { [String](repeating: "id=eq.x", count: count).joined(separator: "&") }
        #expect(try reasons(values(100)) == nil)
        #expect(try reasons(values(101)) == ["token names more than 100 values"])
        #expect(try reasons(filters(100) + "&order=token&select=id") == nil)
        #expect(
            try reasons(filters(100) + "&token=eq.x&order=token&order=")
                == ["token is one filter too many; a query has at most 100", "order occurs twice"])
    }

    @Test("names at most a hundred faults")
    func mostFaults() {
        let query = [String](repeating: "name=x", count: 101).joined(separator: "&")
        #expect(Self.problem { _ = try EdgeQuery(RequestQuery.fields(query)) }?.faults.count == 100)
    }

    @Test(
        "a quoted value of a list may hold commas; a quote within a value is text",
        arguments: [
            (#"("iPhone14,2")"#, ["t0"]), (#"(plain,"iPhone14,2")"#, ["t0", "t2"]),
            (#"("iPhone14,2",plain)"#, ["t0", "t2"]), (#"(12" tab)"#, ["t1"]), (#"(iPhone14,2)"#, []),
        ]
    )
    func quotedValues(list: String, tokens: [String]) throws {
        let rows = ["iPhone14,2", #"12" tab"#, "plain"].enumerated().map { place, name in
            Self.row("t\(place)", .android, deviceID: name, at: Int64(place))
        }
        let query = try EdgeQuery(RequestQuery.fields("device_id=in.\(list)"))
        #expect(query.matching(rows).map(\.device.token) == tokens)
    }

    @Test("finds a user's rows in either letter case of a UUID")
    func userCase() throws {
        let user = "33333333-aaaa-4000-8000-00000000000a"
        let rows = [Self.row("a1", .ios, of: user, at: 0)]
        for (named, count) in [(user, 1), (user.uppercased(), 1), ("33333333-AAAA-4000-8000-00000000000B", 0)] {
            let query = try EdgeQuery(RequestQuery.fields("user_id=eq.\(named)"))
            #expect(query.matching(rows).count == count, "\(named)")
        }
    }

    @Test("refuses a change without a filter, as it would affect every row")
    func filtered() throws {
        #expect(try EdgeQuery(RequestQuery.fields("select=id&limit=1")).isFiltered == false)
        #expect(try EdgeQuery(RequestQuery.fields("token=eq.a1")).isFiltered)
    }

    @Test("reads the Prefer header")
    func preferences() {
        let plain = EdgePreferences(prefer: [], accept: nil)
        #expect(!plain.returnsRows && !plain.counts && !plain.isSingle)
        let full = EdgePreferences(
            prefer: ["resolution=merge-duplicates, return=representation", "count=exact"],
            accept: "application/vnd.pgrst.object+json"
        )
        #expect(full.returnsRows && full.counts && full.isSingle)
    }

    // MARK: Bodies

    private static func json(_ text: String) throws -> JSONValue {
        try JSONParser.parse(Array(text.utf8))
    }

    private static func problem(_ body: () throws -> Void) -> Problem? {
        do {
            try body()
            return nil
        } catch {
            return error as? Problem
        }
    }

    @Test("reads one token or an array and refuses those of another user")
    func bodies() throws {
        let one = try EdgeRequests.tokens(
            try Self.json(
                #"{"user_id":"u1","platform":"ios","token":"\#(Self.apnsToken)","device_id":"D","last_seen_at":"now()"}"#
            ),
            user: "u1"
        )
        #expect(one == [.init(platform: .ios, token: Self.apnsToken, deviceID: "D")])
        let two = try EdgeRequests.tokens(
            try Self.json(#"[{"platform":"android","token":"x:1"},{"platform":"android","token":"x:2"}]"#),
            user: "u1"
        )
        #expect(two.map(\.token) == ["x:1", "x:2"])
        let targeted = try EdgeRequests.tokens(
            try Self.json(#"{"platform":"android","token":"x:3","app_version":"2.1","locale":"pt_BR"}"#), user: "u1")
        #expect(targeted == [.init(platform: .android, token: "x:3", appVersion: "2.1", locale: "pt_BR")])
        let long = String(repeating: "D", count: 300)
        let (device, version) = (String(long.prefix(255)), String(long.prefix(64)))
        let unlimited = try Self.json(
            #"{"platform":"android","token":"x:6","device_id":"\#(long)","app_version":"\#(long)"}"#)
        let cut = try EdgeRequests.tokens(unlimited, user: "u1")
        #expect(cut == [.init(platform: .android, token: "x:6", deviceID: device, appVersion: version)])
        let changed = try EdgeRequests.change(unlimited, user: "u1")
        #expect(changed == .init(token: "x:6", deviceID: device, appVersion: version))
        for locale in ["zh-Hans-CN-u-fw-mon-ms-metric-mu-celsius", "zh_CN_#Hans", "th_TH@calendar=gregorian"] {
            let phone = try Self.json(#"{"platform":"android","token":"x:5","locale":"\#(locale)"}"#)
            #expect(try EdgeRequests.tokens(phone, user: "u1").map(\.locale) == [locale])
        }
        let shouted = try Self.json(
            #"{"user_id":"33333333-AAAA-4000-8000-00000000000A","platform":"android","token":"x:4"}"#)
        let own = try EdgeRequests.tokens(shouted, user: "33333333-aaaa-4000-8000-00000000000a")
        #expect(own.map(\.token) == ["x:4"])
        let foreign = try Self.json(#"{"user_id":"u2","platform":"android","token":"x"}"#)
        #expect(Self.problem { _ = try EdgeRequests.tokens(foreign, user: "u1") }?.status == .forbidden)
        #expect(Self.problem { _ = try EdgeRequests.change(foreign, user: "u1") }?.status == .forbidden)
    }

    @Test(
        "names the place of a fault in a body, with PostgreSQL's code",
        arguments: [
            (#"{}"#, ["platform", "token"], "23502"), (#"{"platform":"palm"}"#, ["platform", "token"], "23502"),
            (#"{"platform":"web","token":"x"}"#, ["platform"], "23514"),
            (#"{"platform":"ios","token":"\#(String(repeating: "xy", count: 32))"}"#, ["token"], "23514"),
            (#"{"platform":"ios","token":"\#(String(repeating: "ab", count: 31))"}"#, ["token"], "23514"),
            (
                #"[{"platform":"android","token":"x"},{"platform":"palm","token":7}]"#,
                ["[1].platform", "[1].token"], "23514"
            ),
            (#"{"platform":"android","token":"x","locale":"not a tag"}"#, ["locale"], "23514"),
            (#"{"platform":"android","token":"x","locale":"de#a b"}"#, ["locale"], "23514"),
            (
                #"{"platform":"android","token":"x","locale":"de@\#(String(repeating: "x", count: 126))"}"#,
                ["locale"], "23514"
            ),
            (#"[]"#, [], nil), (#"["x"]"#, [], nil), (#"7"#, [], nil),
        ] as [(String, [String], String?)]
    )
    func bodyFaults(text: String, places: [String], code: String?) throws {
        let body = try Self.json(text)
        let problem = Self.problem { _ = try EdgeRequests.tokens(body, user: "u1") }
        #expect(problem?.status == .badRequest && problem?.faults.map(\.field) == places && problem?.code == code)
    }

    @Test("reads changes and events")
    func changes() throws {
        let change = try EdgeRequests.change(try Self.json(#"{"token":"new","updated_at":"now()"}"#), user: "u1")
        #expect(change == .init(token: "new"))
        let others = try EdgeRequests.change(
            try Self.json(#"{"device_id":null,"app_version":"2.2","locale":""}"#), user: "u1")
        #expect(others == .init(deviceID: .some(nil), appVersion: "2.2", locale: .some(nil)))
        let id = "01a1f866-0d7b-841c-a9a6-5597aa0575f3"
        let events = try EdgeRequests.events(
            try Self.json(#"[{"notification_id":"\#(id)","event":"opened","platform":"ios"}]"#))
        #expect(events.map(\.id.description) == [id])
        #expect(events.map(\.kind) == [.opened])
        for text in [#"{"event":"opened"}"#, #"{"notification_id":"x","event":"opened"}"#] {
            let body = try Self.json(text)
            #expect(Self.problem { _ = try EdgeRequests.events(body) }?.faults.map(\.field) == ["notification_id"])
        }
        let unknown = try Self.json(#"{"notification_id":"\#(id)","event":"seen"}"#)
        #expect(Self.problem { _ = try EdgeRequests.events(unknown) }?.faults.map(\.field) == ["event"])
    }
}
