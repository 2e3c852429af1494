// Carillon · JobDecoder.swift
// SPDX-License-Identifier: Apache-2.0

/// Decodes a job from the flat fields of a stream entry and reports every fault.
package struct JobDecoder {
    /// The JSON types of the members that become a field of text.
    private enum Form {
        case string, id, number, flag

        /// Returns why a member has none of these types; nil if it has one.
        func fault(_ value: JSONValue) -> String? {
            switch (self, value) {
            case (.string, .string), (.id, .string), (.number, .number), (.flag, .bool): nil
            // Ids are compared as text, so 1.0 and 1e0 would differ from 1.
            case (.id, .number(let text)) where !text.contains(where: { ".eE".contains($0) }): nil
            case (.string, _): "must be a string"
            case (.id, _): "must be a string or a whole number"
            case (.number, _): "must be a whole number"
            case (.flag, _): "must be true"
            }
        }
    }

    /// Fields not read yet.
    ///
    /// They are few, so a linear search is fastest.
    private var fields: [(name: String, value: ArraySlice<UInt8>)] = []
    /// A one-word Bloom filter over the names in ``fields``: most lookups are for absent names.
    private var marks: UInt64 = 0
    private var faults: [JobFault] = []
    /// The JSON object that the fields come from; nil for an entry, which has only text.
    private var source: JSONValue?

    /// Decodes the fields of one entry.
    ///
    /// - Parameters:
    ///   - entry: names and values in their order.
    ///   - source: the JSON object that the fields come from; if nil, the types of its members
    ///     are not checked.
    ///   - isKnown: whether the catalog has a type.
    ///   - check: returns the catalog's faults for the content.
    /// - Throws: ``JobFaults`` with every fault.
    package static func decode(
        _ entry: [(name: String, value: ArraySlice<UInt8>)],
        from source: JSONValue? = nil,
        isKnown: (_ type: String) -> Bool = { _ in true },
        check: (_ content: JobContent) -> [JobFault] = { _ in [] }
    ) throws(JobFaults) -> Job {
        guard entry.count <= JobLimits.fields else {
            throw JobFaults([JobFault("fields", "are more than \(JobLimits.fields)")])
        }
        var decoder = JobDecoder()
        decoder.source = source
        decoder.fields.reserveCapacity(entry.count)
        for (name, value) in entry {
            if decoder.take(name) != nil { decoder.fault(name, "occurs twice") }
            decoder.fields.append((name, value))
            decoder.marks |= Self.mark(name)
        }
        let job = decoder.job()
        if case .notification(let content) = job?.payload {
            if !content.type.isEmpty, !isKnown(content.type) { decoder.fault("type", JobFault.notInCatalog) }
            decoder.faults += check(content)
        }
        for name in decoder.fields.map({ ExactText($0.name) }).sorted() {
            decoder.fault(name.text, "is not a field of a job; see docs/jobs.md")
        }
        guard decoder.faults.isEmpty, let job else { throw JobFaults(decoder.faults) }
        return job
    }

    private mutating func job() -> Job? {
        let audience = self.audience()
        let payload = self.payload()
        let id = self.text("id", limit: JobLimits.id, as: .id)
        let org = self.text("org", limit: JobLimits.org, as: .id)
        let except = self.users("except")
        guard let audience, let payload else { return nil }
        var job = Job(audience: audience, payload: payload)
        job.id = id
        job.org = org ?? ""
        job.except = except ?? []
        return job
    }

    private mutating func audience() -> Audience? {
        let named = Self.audiences.filter { self.has($0) }
        guard named.count == 1 else {
            for name in named { _ = self.take(name) }
            let names = (named.isEmpty ? Self.audiences : named).joined(separator: ", ")
            self.fault(named.first ?? "user", "give \(named.isEmpty ? "one" : "only one") of \(names)")
            return nil
        }
        switch named[0] {
        case "user":
            guard let user = self.text("user", limit: JobLimits.user, as: .id) else { return nil }
            return .users([user])
        case "users":
            return self.users("users").map { .users($0) }
        case "topic":
            return self.text("topic", limit: JobLimits.name).map { .topic($0) }
        default:
            guard let flag = self.text("all", limit: JobLimits.name, as: .flag) else { return nil }
            guard flag == "true" || flag == "1" else {
                self.fault("all", "must be true")
                return nil
            }
            return .everyone
        }
    }

    private mutating func payload() -> Job.Payload? {
        // W3C Trace Context: ignore a malformed `traceparent`. It must not cost a notification.
        let trace = self.take("traceparent").flatMap { TraceContext(String(decoding: $0, as: UTF8.self)) }
        guard !self.has("event") else {
            let name = self.text("event", limit: JobLimits.name)
            let arguments = self.json("args", limit: JobLimits.json)
            if let arguments, arguments.value.array == nil { self.fault("args", "must be a JSON array") }
            self.refuseContent()
            return name.map { .event(name: $0, arguments: arguments.map { Array($0.text) } ?? Array("[]".utf8)) }
        }
        return .notification(self.content(trace))
    }

    /// Reports the fields that only a notification has.
    private mutating func refuseContent() {
        var rest = self
        _ = rest.content(nil)
        for (name, _) in self.fields where !rest.has(name) {
            _ = self.take(name)
            self.fault(name, "cannot be combined with event")
        }
    }

    private mutating func content(_ trace: TraceContext?) -> JobContent {
        if !self.has("type") { self.fault("type", "is missing") }
        var content = JobContent(type: self.text("type", limit: JobLimits.name) ?? "")
        content.title = self.text("title", limit: JobLimits.title, allowsEmpty: true) ?? ""
        content.body = self.text("body", limit: JobLimits.body, allowsEmpty: true) ?? ""
        content.data = self.object("data")
        content.entityType = self.text("entity_type", limit: JobLimits.name)
        content.entityID = self.text("entity_id", limit: JobLimits.name, as: .id)
        content.category = self.text("category", limit: JobLimits.name)
        content.collapseKey = self.text("collapse_key", limit: 64)
        content.severity = self.choice("severity", of: Severity.self)
        content.delivery = self.choice("delivery", of: DeliveryClass.self)
        content.lane = self.choice("lane", of: Lane.self)
        content.channels = self.channels()
        content.expiresAt = self.moment("expires_at")
        content.keepUntil = self.moment("keep_until")
        content.template = self.text("template", limit: JobLimits.name)
        content.variables = self.members("vars")
        content.deliverAt = self.moment("deliver_at")
        content.deliverLocal = self.wallTime("deliver_local")
        if content.deliverAt != nil, content.deliverLocal != nil { self.fault("deliver_local", "excludes deliver_at") }
        if let due = content.deliverAt {
            for (name, end) in [("expires_at", content.expiresAt), ("keep_until", content.keepUntil)] {
                if let end, end <= due { self.fault(name, "must be after deliver_at") }
            }
        }
        content.digest = self.text("digest", limit: JobLimits.name)
        content.extras.url = self.link("url") { LinkRule.fault(ofLink: $0) }
        content.extras.image = self.link("image") { LinkRule.fault(ofImage: $0) }
        content.extras.sound = self.text("sound", limit: JobLimits.name)
        content.extras.state = self.text("state", limit: JobLimits.name)
        content.extras.badge = self.integer("badge", in: 0...Int64(JobLimits.badge))
        content.extras.pushPriority = self.choice("push_priority", of: PushPriority.self)
        content.extras.platform = self.platform()
        content.extras.traceParent = trace?.traceParent
        return content
    }

    // MARK: Fields

    private static let audiences = ["user", "users", "topic", "all"]

    /// One of 64 bits, from a name's first byte and its length.
    private static func mark(_ name: String) -> UInt64 {
        1 << ((UInt64(name.utf8.first ?? 0) &* 5 &+ UInt64(name.utf8.count)) & 63)
    }

    private func index(of name: String) -> Int? {
        guard self.marks & Self.mark(name) != 0 else { return nil }
        // Compares bytes: an unknown name may have any number of combining marks.
        return self.fields.firstIndex { ExactText($0.name) == ExactText(name) }
    }

    private func has(_ name: String) -> Bool { self.index(of: name) != nil }

    private mutating func take(_ name: String) -> ArraySlice<UInt8>? {
        self.index(of: name).map { self.fields.remove(at: $0).value }
    }

    /// Returns the member of ``source`` that a field comes from; nil if there is none.
    private func member(_ name: String) -> JSONValue? {
        switch self.source?[name] {
        case nil, .null: nil
        case let value?: value
        }
    }

    // MARK: Kinds of field

    private mutating func fault(_ field: String, _ reason: String) {
        // An unknown field name can be as long as a value.
        self.faults.append(JobFault(String(field.unicodeScalars.prefix(64)), reason))
    }

    private mutating func text(
        _ name: String,
        limit: Int,
        allowsEmpty: Bool = false,
        as form: Form = .string
    ) -> String? {
        guard let bytes = self.take(name) else { return nil }
        if let value = self.member(name), let reason = form.fault(value) {
            self.fault(name, reason)
            return nil
        }
        guard let text = String(validating: bytes, as: UTF8.self) else {
            self.fault(name, "is not valid UTF-8")
            return nil
        }
        return self.checked(text, name, limit: limit, allowsEmpty: allowsEmpty)
    }

    /// - Parameter name: the field; read only for a fault.
    private mutating func checked(
        _ text: String,
        _ name: @autoclosure () -> String,
        limit: Int,
        allowsEmpty: Bool = false
    ) -> String? {
        if text.isEmpty, !allowsEmpty {
            self.fault(name(), "is empty")
        } else if text.utf8.contains(0) {
            self.fault(name(), "holds the character U+0000")
        } else if text.utf8.count > limit, text.unicodeScalars.count > limit {
            self.fault(name(), "is longer than \(limit) characters")
        } else if CombiningMarks.areTooMany(in: text) {
            self.fault(name(), CombiningMarks.fault)
        } else {
            return text
        }
        return nil
    }

    private mutating func json(_ name: String, limit: Int) -> (value: JSONValue, text: ArraySlice<UInt8>)? {
        guard let bytes = self.take(name) else { return nil }
        // A string that holds JSON is still a string.
        if let value = self.member(name), value.string != nil { return (value, bytes) }
        guard bytes.count <= limit else {
            self.fault(name, "is longer than \(limit) bytes")
            return nil
        }
        do throws(JSONFault) {
            return (try JSONParser.parse(bytes, depth: JobLimits.depth, length: limit), bytes)
        } catch {
            switch error.kind {
            case .tooDeep: self.fault(name, "is nested deeper than \(JobLimits.depth)")
            case .length: self.fault(name, "is longer than \(limit) bytes with exponents written out (1e3 as 1000)")
            default: self.fault(name, "is \(error)")
            }
            return nil
        }
    }

    private mutating func object(_ name: String) -> [UInt8]? {
        guard let json = self.json(name, limit: JobLimits.json) else { return nil }
        return self.members(json.value, name) == nil ? nil : Array(json.text)
    }

    private mutating func members(_ name: String) -> [JSONMember]? {
        self.json(name, limit: JobLimits.json).flatMap { self.members($0.value, name) }
    }

    private mutating func members(_ value: JSONValue, _ name: String) -> [JSONMember]? {
        if let members = value.object { return members }
        self.fault(name, "must be a JSON object")
        return nil
    }

    private mutating func users(_ name: String) -> [String]? {
        guard let json = self.json(name, limit: JobLimits.usersJSON) else { return nil }
        guard let users = json.value.strings, !users.isEmpty, users.count <= JobLimits.users else {
            self.fault(name, "must be a JSON array of 1 to \(JobLimits.users) strings")
            return nil
        }
        var seen: Set<ExactText> = []
        var distinct: [String] = []
        for (index, user) in users.enumerated() {
            guard let user = self.checked(user, "\(name)[\(index)]", limit: JobLimits.user) else { return nil }
            if seen.insert(ExactText(user)).inserted { distinct.append(user) }
        }
        return distinct
    }

    private mutating func platform() -> [UInt8]? {
        guard let json = self.json("platform", limit: JobLimits.json), self.members(json.value, "platform") != nil
        else {
            return nil
        }
        for fault in PlatformFields.faults(json.value) {
            self.fault(fault.field, fault.reason)
        }
        return Array(json.text)
    }

    private mutating func link(_ name: String, fault: (String) -> String?) -> String? {
        guard let text = self.text(name, limit: JobLimits.url) else { return nil }
        if let reason = fault(text) { self.fault(name, reason) }
        return text
    }

    private mutating func choice<Value: RawRepresentable<String> & CaseIterable>(
        _ name: String,
        of type: Value.Type
    ) -> Value? {
        guard let text = self.text(name, limit: JobLimits.name) else { return nil }
        if let value = Value(rawValue: text) { return value }
        self.fault(name, "must be one of " + Value.allCases.map(\.rawValue).joined(separator: ", "))
        return nil
    }

    private mutating func channels() -> Channels? {
        guard let json = self.json("channels", limit: JobLimits.json) else { return nil }
        let named = json.value.strings?.map { DeliveryChannel(rawValue: $0) } ?? []
        guard !named.isEmpty, named.allSatisfy({ $0 != nil }) else {
            self.fault("channels", "must be a JSON array out of in_app, push, email")
            return nil
        }
        return named.compactMap { $0 }.reduce(into: Channels()) { $0.insert(Channels($1)) }
    }

    private mutating func moment(_ name: String) -> Timestamp? {
        guard let text = self.text(name, limit: JobLimits.name) else { return nil }
        if let moment = Timestamp(rfc3339: text) { return moment }
        self.fault(name, "must be an RFC 3339 time such as 2026-11-20T10:00:00Z")
        return nil
    }

    private mutating func wallTime(_ name: String) -> WallTime? {
        guard let text = self.text(name, limit: JobLimits.name) else { return nil }
        if let time = WallTime(text) { return time }
        self.fault(name, "must be a time of day such as 08:30, or a day with it such as 2027-01-01T08:30")
        return nil
    }

    private mutating func integer(_ name: String, in range: ClosedRange<Int64>) -> Int64? {
        guard let text = self.text(name, limit: JobLimits.name, as: .number) else { return nil }
        if let value = (try? JSONParser.parse(Array(text.utf8)))?.integer, range.contains(value) { return value }
        self.fault(name, "must be a whole number from \(range.lowerBound) to \(range.upperBound)")
        return nil
    }
}

/// Turns a job's JSON object into the flat fields of a stream entry.
package enum JobFields {
    /// The names of the fields that name recipients.
    package static let audience: Set<String> = ["user", "users", "topic", "all", "except"]

    /// Returns strings as they are and other values as JSON text; drops nulls.
    ///
    /// The types are lost, so also give the decoder the object if it must check them.
    package static func flat(_ members: [JSONMember]) -> [(name: String, value: [UInt8])] {
        var fields: [(name: String, value: [UInt8])] = []
        fields.reserveCapacity(members.count + 1)
        for member in members {
            switch member.value {
            case .null: continue
            case .string(let text): fields.append((member.key, Array(text.utf8)))
            default: fields.append((member.key, JSONWriter.bytes(of: member.value)))
            }
        }
        return fields
    }
}

/// The limits of a job's fields.
///
/// Text is counted in Unicode scalars, JSON in bytes.
package enum JobLimits {
    /// The number of fields; more than there are field names.
    package static let fields = 64
    package static let user = 128
    package static let users = 1_000
    package static let id = 128
    package static let org = 128
    package static let name = 128
    package static let title = 255
    package static let body = 4_096
    package static let url = 2_048
    package static let badge = 99_999
    package static let json = 16_384
    /// The deepest nesting of JSON; below the parser's own limit, because other JSON wraps it
    /// later.
    static let depth = 56
    static let usersJSON = 1_048_576
}
