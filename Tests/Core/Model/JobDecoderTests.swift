// Carillon · JobDecoderTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Core

@Suite("Valid jobs", .timeLimit(.minutes(10)))
struct JobDecoderTests {
    @Test("a user and a type make a job")
    func least() throws {
        let job = try JobEntry().decode()
        #expect(job == Job(audience: .users(["u1"]), payload: .notification(JobContent(type: "greeting"))))
        #expect(job.id == nil)
        #expect(job.org.isEmpty)
    }

    @Test("decodes every field")
    func all() throws {
        let entry = JobEntry([
            "id": "j-1", "org": "acme", "users": #"["a","b"]"#, "except": #"["b"]"#,
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "type": "payment_received", "title": "Payment", "body": "€ 40", "data": #"{"invoice":"i9"}"#,
            "entity_type": "invoice", "entity_id": "i9", "category": "payments", "severity": "warning",
            "delivery": "in_app", "lane": "bulk", "channels": #"["push","in_app"]"#, "collapse_key": "k",
            "expires_at": "2026-11-20T10:00:00Z", "keep_until": "2027-01-01T00:00:00+01:00", "url": "app://i9",
            "image": "https://example.org/i.png", "sound": "ding", "state": "open", "badge": "7",
            "push_priority": "normal",
            "platform": #"{"apns":{"thread_id":"t"}}"#,
        ])
        var content = JobContent(type: "payment_received")
        content.title = "Payment"
        content.body = "€ 40"
        content.data = Array(#"{"invoice":"i9"}"#.utf8)
        content.entityType = "invoice"
        content.entityID = "i9"
        content.category = "payments"
        content.severity = .warning
        content.delivery = .inApp
        content.lane = .bulk
        content.channels = [.push, .inApp]
        content.collapseKey = "k"
        content.expiresAt = Timestamp(seconds: 1_795_168_800)
        content.keepUntil = Timestamp(seconds: 1_798_758_000)
        content.extras.url = "app://i9"
        content.extras.image = "https://example.org/i.png"
        content.extras.sound = "ding"
        content.extras.state = "open"
        content.extras.badge = 7
        content.extras.pushPriority = .normal
        content.extras.platform = Array(#"{"apns":{"thread_id":"t"}}"#.utf8)
        content.extras.traceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        var job = Job(audience: .users(["a", "b"]), payload: .notification(content))
        job.id = "j-1"
        job.org = "acme"
        job.except = ["b"]
        #expect(try entry.decode() == job)
    }

    @Test("users are distinct and keep their order; canonically equivalent names are distinct")
    func users() throws {
        #expect(try JobEntry(["users": #"["b","a","b","\u0062"]"#]).decode().audience == .users(["b", "a"]))
        let alike = try JobEntry(["users": #"["\u00e9","e\u0301"]"#]).decode().audience
        guard case .users(let users) = alike else { return #expect(Bool(false)) }
        #expect(users.count == 2)
    }

    @Test("accepts a thousand users")
    func thousandUsers() throws {
        let users = (0..<1_000).map { "user-\($0)" }
        let job = try JobEntry(["users": "[\(users.map { "\"\($0)\"" }.joined(separator: ","))]"]).decode()
        #expect(job.audience == .users(users))
    }

    @Test("text may be empty and in any script")
    func text() throws {
        let content = try JobEntry(["title": "", "body": "é€😀\n\t\u{FEFF}"]).content()
        #expect(content?.title.isEmpty == true)
        #expect(content?.body == "é€😀\n\t\u{FEFF}")
    }

    @Test("data is kept byte for byte")
    func data() throws {
        let text = #"{ "b" : 1.50, "a":"\u00e9" }"#
        #expect(try JobEntry(["data": text]).content()?.data == Array(text.utf8))
    }

    @Test(
        "lengths count Unicode scalars up to the limit",
        arguments: [
            ("user", 128), ("id", 128), ("org", 128), ("type", 128), ("title", 255), ("body", 4_096), ("url", 2_048),
            ("sound", 128), ("state", 128), ("category", 128), ("entity_type", 128),
            ("entity_id", 128),
            ("collapse_key", 64),
        ]
    )
    func lengths(field: String, limit: Int) {
        for character in ["a", "é", "😀"] {
            let longest = String(repeating: character, count: limit)
            #expect(JobEntry(field, bytes: Array(longest.utf8)).faults.isEmpty)
            let fault = "\(field): is longer than \(limit) characters"
            #expect(JobEntry(field, bytes: Array((longest + character).utf8)).faults == [fault])
        }
        // Four scalars in one grapheme cluster.
        let clusters = String(repeating: "👩🏽‍🚒", count: limit / 4 + 1)
        #expect(JobEntry(field, bytes: Array(clusters.utf8)).faults.count == 1)
    }

    @Test("a traceparent of any length or form costs no job")
    func traceParents() throws {
        let trace = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
        let long = [UInt8](repeating: 0x61, count: 1 << 20)
        let malformed: [[UInt8]] = [[], [0x00], [0xFF], Array("00-1-2-3".utf8), long]
        for bytes in malformed {
            let entry = JobEntry("traceparent", bytes: bytes)
            #expect(entry.faults.isEmpty)
            #expect(try entry.content()?.extras.traceParent == nil)
        }
        let newer = JobEntry("traceparent", bytes: Array("01-\(trace)-01-".utf8) + long)
        #expect(try newer.content()?.extras.traceParent == "00-\(trace)-01")
    }

    @Test("an event has a name and arguments")
    func events() throws {
        let job = try JobEntry(["event": "typing", "args": #"[1,{"a":2}]"#]).decode()
        #expect(job.payload == .event(name: "typing", arguments: Array(#"[1,{"a":2}]"#.utf8)))
        let bare = try JobEntry(["event": "typing"]).decode()
        #expect(bare.payload == .event(name: "typing", arguments: Array("[]".utf8)))
    }

    @Test("the order of fields does not matter")
    func order() throws {
        let one = try JobEntry(["type": "t", "user": "u", "title": "x"]).decode()
        #expect(try JobEntry(["title": "x", "user": "u", "type": "t"]).decode() == one)
    }
}

/// The fields of a stream entry, as a test writes them.
struct JobEntry {
    private var fields: [(name: String, value: ArraySlice<UInt8>)]
    private var source: JSONValue?

    /// The smallest job, with fields replaced or added; nil removes a field.
    init(_ changes: KeyValuePairs<String, String?> = [:]) {
        self.fields = []
        for (name, value) in changes {
            if let value { self.append(name, Array(value.utf8)) }
        }
        let named = Set(changes.map(\.key))
        if named.isDisjoint(with: ["user", "users", "topic", "all"]) { self.append("user", Array("u1".utf8)) }
        if named.isDisjoint(with: ["type", "event"]) { self.append("type", Array("greeting".utf8)) }
    }

    /// The smallest job with one more field in bytes.
    init(_ name: String, bytes: [UInt8]) {
        switch name {
        case "user", "users": self.init(["user": nil])
        case "type": self.init(["type": nil])
        default: self.init()
        }
        self.append(name, bytes)
    }

    /// A job as a JSON object, whose members must have their types.
    init(json: String) throws {
        let object = try JSONParser.parse(Array(json.utf8))
        self.fields = JobFields.flat(object.object ?? []).map { ($0.name, $0.value[...]) }
        self.source = object
    }

    mutating func append(_ name: String, _ value: [UInt8]) {
        self.fields.append((name, value[...]))
    }

    func decode() throws(JobFaults) -> Job {
        try JobDecoder.decode(self.fields, from: self.source)
    }

    /// The faults, one per line.
    var faults: [String] {
        do throws(JobFaults) {
            _ = try self.decode()
            return []
        } catch {
            return error.faults.map(\.description)
        }
    }

    /// The content of the notification job.
    func content() throws -> JobContent? {
        guard case .notification(let content) = try self.decode().payload else { return nil }
        return content
    }
}
