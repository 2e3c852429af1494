// Carillon · JSON.swift
// SPDX-License-Identifier: Apache-2.0

/// A parsed JSON value (RFC 8259); members keep their order.
enum JSONValue {
    struct Member {
        let name: String
        let value: JSONValue
    }

    case null
    case bool(Bool)
    case number(Double)
    case string(String)
    case array([JSONValue])
    case object([Member])

    /// The text, if this is a string.
    var text: String? {
        guard case .string(let text) = self else { return nil }
        return text
    }

    /// The number, if this is one.
    var double: Double? {
        guard case .number(let number) = self else { return nil }
        return number
    }

    /// The members, if this is an object.
    var members: [Member]? {
        guard case .object(let members) = self else { return nil }
        return members
    }

    /// Whether this is JSON's `null`.
    var isNull: Bool {
        guard case .null = self else { return false }
        return true
    }

    /// Returns a member's value, found by either spelling; `nil` if it is absent or null.
    func member(_ name: String, or camelCase: String? = nil) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        for member in members where member.name == name || member.name == camelCase {
            return member.value.isNull ? nil : member.value
        }
        return nil
    }
}

/// A single-pass JSON parser.
///
/// It is hand-written for speed: the sandbox parses every body and shares two cores with the system
/// under test.
struct JSONReader {
    /// The text is not JSON; `offset` is the offending byte.
    struct Fault: Error {
        let offset: Int
    }

    private static let maximumDepth = 64

    private let bytes: [UInt8]
    private var position = 0

    private init(_ bytes: [UInt8]) {
        self.bytes = bytes
    }

    /// Parses a whole text: UTF-8, no trailing bytes, at most 64 levels.
    static func parse(_ bytes: [UInt8]) throws(Fault) -> JSONValue {
        var reader = JSONReader(bytes)
        let value = try reader.value(depth: 0)
        reader.skipSpace()
        guard reader.position == bytes.count else { throw reader.fault }
        return value
    }

    private var fault: Fault { Fault(offset: self.position) }

    private var current: UInt8? {
        self.position < self.bytes.count ? self.bytes[self.position] : nil
    }

    private mutating func skipSpace() {
        while let byte = self.current, byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 {
            self.position += 1
        }
    }

    private mutating func take(_ byte: UInt8) -> Bool {
        guard self.current == byte else { return false }
        self.position += 1
        return true
    }

    private mutating func expect(_ word: StaticString) throws(Fault) {
        for byte in word.description.utf8 {
            guard self.take(byte) else { throw self.fault }
        }
    }

    private mutating func value(depth: Int) throws(Fault) -> JSONValue {
        guard depth < Self.maximumDepth else { throw self.fault }
        self.skipSpace()
        switch self.current {
        case UInt8(ascii: "{"): return .object(try self.members(depth: depth))
        case UInt8(ascii: "["): return .array(try self.elements(depth: depth))
        case UInt8(ascii: "\""): return .string(try self.string())
        case UInt8(ascii: "t"):
            try self.expect("true")
            return .bool(true)
        case UInt8(ascii: "f"):
            try self.expect("false")
            return .bool(false)
        case UInt8(ascii: "n"):
            try self.expect("null")
            return .null
        default: return .number(try self.number())
        }
    }

    private mutating func members(depth: Int) throws(Fault) -> [JSONValue.Member] {
        self.position += 1
        var members: [JSONValue.Member] = []
        self.skipSpace()
        if self.take(UInt8(ascii: "}")) { return members }
        repeat {
            self.skipSpace()
            guard self.current == UInt8(ascii: "\"") else { throw self.fault }
            let name = try self.string()
            self.skipSpace()
            guard self.take(UInt8(ascii: ":")) else { throw self.fault }
            members.append(.init(name: name, value: try self.value(depth: depth + 1)))
            self.skipSpace()
        } while self.take(UInt8(ascii: ","))
        guard self.take(UInt8(ascii: "}")) else { throw self.fault }
        return members
    }

    private mutating func elements(depth: Int) throws(Fault) -> [JSONValue] {
        self.position += 1
        var elements: [JSONValue] = []
        self.skipSpace()
        if self.take(UInt8(ascii: "]")) { return elements }
        repeat {
            elements.append(try self.value(depth: depth + 1))
            self.skipSpace()
        } while self.take(UInt8(ascii: ","))
        guard self.take(UInt8(ascii: "]")) else { throw self.fault }
        return elements
    }

    private mutating func number() throws(Fault) -> Double {
        let start = self.position
        _ = self.take(UInt8(ascii: "-"))
        if !self.take(UInt8(ascii: "0")) { try self.digits() }
        if self.take(UInt8(ascii: ".")) { try self.digits() }
        if self.take(UInt8(ascii: "e")) || self.take(UInt8(ascii: "E")) {
            if !self.take(UInt8(ascii: "+")) { _ = self.take(UInt8(ascii: "-")) }
            try self.digits()
        }
        guard let number = Double(String(decoding: self.bytes[start..<self.position], as: UTF8.self)) else {
            throw self.fault
        }
        return number
    }

    private mutating func digits() throws(Fault) {
        let start = self.position
        while let byte = self.current, byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9") {
            self.position += 1
        }
        guard self.position > start else { throw self.fault }
    }

    private mutating func string() throws(Fault) -> String {
        self.position += 1
        let start = self.position
        while let byte = self.current {
            if byte == UInt8(ascii: "\"") {
                let text = String(validating: self.bytes[start..<self.position], as: UTF8.self)
                guard let text else { throw self.fault }
                self.position += 1
                return text
            }
            if byte == UInt8(ascii: "\\") { return try self.escapedString(from: start) }
            guard byte >= 0x20 else { throw self.fault }
            self.position += 1
        }
        throw self.fault
    }

    private mutating func escapedString(from start: Int) throws(Fault) -> String {
        var decoded = Array(self.bytes[start..<self.position])
        while let byte = self.current {
            self.position += 1
            switch byte {
            case UInt8(ascii: "\""):
                guard let text = String(validating: decoded, as: UTF8.self) else { throw self.fault }
                return text
            case UInt8(ascii: "\\"):
                decoded.append(contentsOf: String(try self.escape()).utf8)
            case 0x20...:
                decoded.append(byte)
            default:
                throw self.fault
            }
        }
        throw self.fault
    }

    private mutating func escape() throws(Fault) -> Unicode.Scalar {
        guard let byte = self.current else { throw self.fault }
        self.position += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return Unicode.Scalar(byte)
        case UInt8(ascii: "b"): return "\u{8}"
        case UInt8(ascii: "f"): return "\u{C}"
        case UInt8(ascii: "n"): return "\n"
        case UInt8(ascii: "r"): return "\r"
        case UInt8(ascii: "t"): return "\t"
        case UInt8(ascii: "u"): return try self.unicodeEscape()
        default: throw self.fault
        }
    }

    private mutating func unicodeEscape() throws(Fault) -> Unicode.Scalar {
        var code = try self.hexadecimal()
        if (0xD800..<0xDC00).contains(code) {
            try self.expect("\\u")
            let low = try self.hexadecimal()
            guard (0xDC00..<0xE000).contains(low) else { throw self.fault }
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        }
        guard let scalar = Unicode.Scalar(code) else { throw self.fault }
        return scalar
    }

    private mutating func hexadecimal() throws(Fault) -> UInt32 {
        let end = self.position + 4
        guard end <= self.bytes.count else { throw self.fault }
        let digits = self.bytes[self.position..<end]
        guard digits.allSatisfy({ Character(Unicode.Scalar($0)).isHexDigit }) else { throw self.fault }
        guard let code = UInt32(String(decoding: digits, as: UTF8.self), radix: 16) else { throw self.fault }
        self.position = end
        return code
    }
}

/// Writes JSON where the order of members and the exact bytes matter.
enum JSONText {
    /// Returns the text as a JSON string (RFC 8259 section 7).
    static func quoted(_ text: String) -> String {
        var quoted = "\""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\"": quoted += "\\\""
            case "\\": quoted += "\\\\"
            case "\n": quoted += "\\n"
            case "\r": quoted += "\\r"
            case "\t": quoted += "\\t"
            case "\u{0}"..<"\u{20}":
                let code = String(scalar.value, radix: 16)
                quoted += "\\u" + String(repeating: "0", count: 4 - code.count) + code
            default: quoted.unicodeScalars.append(scalar)
            }
        }
        return quoted + "\""
    }

    /// Returns an object of strings, in the given order.
    static func object(_ members: some Sequence<(String, String)>) -> String {
        "{" + members.map { Self.quoted($0.0) + ":" + Self.quoted($0.1) }.joined(separator: ",") + "}"
    }

    /// Returns an object of counts, sorted by name.
    static func object(_ counts: [String: Int]) -> String {
        let members = counts.sorted { $0.key < $1.key }.map { "\(Self.quoted($0.key)):\($0.value)" }
        return "{" + members.joined(separator: ",") + "}"
    }
}
