// Carillon · FCMField.swift
// SPDX-License-Identifier: Apache-2.0

/// The type of one field of FCM's messages, and the proto3 JSON rules for reading it.
indirect enum FCMField: Sendable {
    case string
    case bool
    case int32
    case float
    /// Strings, or the names written in any case; the numbers too, as proto3 allows.
    case enumeration([String])
    /// Seconds with at most nine decimals and an `s`.
    case duration
    /// RFC 3339.
    case timestamp
    /// `map<string, string>`.
    case stringMap
    /// `google.protobuf.Struct`: any object.
    case structure
    case list(FCMField)
    case message(FCMSchema)

    /// A value does not fit its type.
    struct Mismatch: Error {
        enum Kind {
            case unknownName(String)
            case wrongType(String, shown: String)
        }

        let kind: Kind
        /// From the checked value down.
        var path = ""

        /// Google's words.
        var description: String {
            switch self.kind {
            case .unknownName(let name):
                let place = self.path.isEmpty ? "" : " at '\(self.path)'"
                return "Invalid JSON payload received. Unknown name \"\(name)\"\(place): Cannot find field."
            case .wrongType(let type, let shown):
                return "Invalid value at '\(self.path)' (\(type))\(shown)"
            }
        }

        fileprivate func inside(_ step: String) -> Mismatch {
            let isIndexed = self.path.isEmpty || self.path.hasPrefix("[")
            return Mismatch(kind: self.kind, path: isIndexed ? step + self.path : "\(step).\(self.path)")
        }
    }

    /// Checks a value that is not null.
    func check(_ value: JSONValue) throws(Mismatch) {
        switch self {
        case .string:
            guard value.text != nil else { throw Self.mismatch("TYPE_STRING", value) }
        case .bool:
            guard case .bool = value else { throw Self.mismatch("TYPE_BOOL", value) }
        case .int32:
            guard let number = value.double ?? value.text.flatMap(Double.init), Int32(exactly: number) != nil else {
                throw Self.mismatch("TYPE_INT32", value)
            }
        case .float:
            guard value.double != nil || value.text.flatMap(Double.init) != nil else {
                throw Self.mismatch("TYPE_FLOAT", value)
            }
        case .enumeration(let names):
            let isKnown =
                value.text.map { names.contains($0.uppercased()) }
                ?? value.double.map { Int(exactly: $0).map(names.indices.contains) ?? false } ?? false
            guard isKnown else { throw Self.mismatch("TYPE_ENUM", value) }
        case .duration:
            guard let text = value.text, FCMText.seconds(ofDuration: text) != nil else {
                throw Self.mismatch("type.googleapis.com/google.protobuf.Duration", value)
            }
        case .timestamp:
            guard let text = value.text, FCMText.isTimestamp(text) else {
                throw Self.mismatch("type.googleapis.com/google.protobuf.Timestamp", value)
            }
        case .stringMap:
            try Self.checkStrings(value)
        case .structure:
            guard value.members != nil else { throw Self.mismatch("TYPE_MESSAGE", value) }
        case .list(let field):
            try Self.checkList(value, of: field)
        case .message(let schema):
            try Self.checkMessage(value, schema)
        }
    }

    private static func checkStrings(_ value: JSONValue) throws(Mismatch) {
        guard let members = value.members else { throw self.mismatch("TYPE_MESSAGE", value) }
        for (index, member) in members.enumerated() where member.value.text == nil {
            throw self.mismatch("TYPE_STRING", member.value).inside("[\(index)].value")
        }
    }

    private static func checkList(_ value: JSONValue, of field: FCMField) throws(Mismatch) {
        guard case .array(let elements) = value else { throw self.mismatch("TYPE_LIST", value) }
        for (index, element) in elements.enumerated() {
            do throws(Mismatch) {
                try field.check(element)
            } catch {
                throw error.inside("[\(index)]")
            }
        }
    }

    private static func checkMessage(_ value: JSONValue, _ schema: FCMSchema) throws(Mismatch) {
        guard let members = value.members else { throw self.mismatch("TYPE_MESSAGE", value) }
        for member in members {
            guard let field = schema.fields[member.name] else {
                throw Mismatch(kind: .unknownName(member.name))
            }
            if member.value.isNull { continue }
            do throws(Mismatch) {
                try field.check(member.value)
            } catch {
                throw error.inside(member.name)
            }
        }
    }

    private static func mismatch(_ type: String, _ value: JSONValue) -> Mismatch {
        Mismatch(kind: .wrongType(type, shown: FCMText.shown(value)))
    }
}
