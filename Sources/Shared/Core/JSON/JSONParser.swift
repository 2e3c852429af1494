// Carillon · JSONParser.swift
// SPDX-License-Identifier: Apache-2.0

/// A strict parser for JSON from outside (RFC 8259).
///
/// Refuses what PostgreSQL or a client cannot hold: U+0000, lone surrogates, invalid UTF-8,
/// duplicate keys, numbers beyond a double's range, and nesting deeper than 64. Also refuses what
/// takes too much time or memory: long runs of combining marks, and more than 500,000 values.
package struct JSONParser {
    private static let maximumDepth = 64
    /// Enough for a batch of 16 MB that names its users by UUIDs.
    ///
    /// A value may take thirty times the memory of its text.
    private static let maximumValues = 500_000
    /// A double's largest: most clients read numbers as doubles, and PostgreSQL writes out all
    /// digits.
    private static let maximumExponent = 308
    /// Up to this many members, names are compared one by one; beyond it, in a set.
    private static let fewMembers = 16

    // Valid only during the call of `withUnsafeBufferPointer` in `parse`, which outlives the
    // parser. Reads stay below `count`.
    private let bytes: UnsafeBufferPointer<UInt8>
    private var index = 0
    private let depth: Int
    /// The digits that exponents may still add.
    private var padding: Int
    /// Whether values, marks and the range of numbers are limited.
    private let isFromOutside: Bool
    private var values = 0

    private init(_ bytes: UnsafeBufferPointer<UInt8>, depth: Int, padding: Int, isFromOutside: Bool) {
        self.bytes = bytes
        self.depth = depth
        self.padding = padding
        self.isFromOutside = isFromOutside
    }

    /// Parses a whole text.
    ///
    /// - Throws: ``JSONFault`` with the first fault and its offset.
    package static func parse(_ bytes: [UInt8]) throws(JSONFault) -> JSONValue {
        try bytes.withUnsafeBufferPointer { (bytes) throws(JSONFault) in try Self.parse(bytes) }
    }

    /// Parses a whole slice.
    ///
    /// - Throws: ``JSONFault`` with the first fault and its offset in the slice.
    static func parse(_ bytes: ArraySlice<UInt8>) throws(JSONFault) -> JSONValue {
        try bytes.withUnsafeBufferPointer { (bytes) throws(JSONFault) in try Self.parse(bytes) }
    }

    /// Parses a whole slice that is stored and wrapped in other JSON later.
    ///
    /// - Parameters:
    ///   - depth: the deepest nesting.
    ///   - length: the most bytes, with each exponent counted as the digits that it stands for.
    /// - Throws: ``JSONFault`` with the first fault and its offset in the slice.
    static func parse(_ bytes: ArraySlice<UInt8>, depth: Int, length: Int) throws(JSONFault) -> JSONValue {
        try bytes.withUnsafeBufferPointer { (bytes) throws(JSONFault) in
            try Self.parse(bytes, depth: depth, padding: length - bytes.count)
        }
    }

    /// Parses JSON that Carillon stored, perhaps before today's limits applied: it does not limit
    /// the number of values, marks and the range of numbers.
    ///
    /// Compare its keys and strings only as ``ExactText``: with many marks, comparing a `String`
    /// takes time quadratic in its length.
    ///
    /// - Throws: ``JSONFault`` with the first fault and its offset.
    package static func parse(stored bytes: [UInt8]) throws(JSONFault) -> JSONValue {
        try bytes.withUnsafeBufferPointer { (bytes) throws(JSONFault) in
            try Self.parse(bytes, isFromOutside: false)
        }
    }

    private static func parse(
        _ bytes: UnsafeBufferPointer<UInt8>,
        depth: Int = Self.maximumDepth,
        padding: Int = .max,
        isFromOutside: Bool = true
    ) throws(JSONFault) -> JSONValue {
        guard Self.isASCII(bytes) || String(validating: bytes, as: UTF8.self) != nil else {
            throw JSONFault(.invalidUTF8, at: 0)
        }
        var parser = JSONParser(bytes, depth: depth, padding: padding, isFromOutside: isFromOutside)
        parser.skipSpace()
        let value = try parser.value(depth: 0)
        parser.skipSpace()
        guard parser.index == bytes.count else { throw parser.fault() }
        return value
    }

    private static func isASCII(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
        let raw = UnsafeRawBufferPointer(bytes)
        var index = 0
        while index + 8 <= raw.count {
            guard raw.loadUnaligned(fromByteOffset: index, as: UInt64.self) & 0x8080_8080_8080_8080 == 0 else {
                return false
            }
            index += 8
        }
        return raw[index...].allSatisfy { $0 < 0x80 }
    }

    private func text(_ range: Range<Int>) -> String {
        String(decoding: UnsafeBufferPointer(rebasing: self.bytes[range]), as: UTF8.self)
    }

    private func fault(_ kind: JSONFault.Kind = .invalid) -> JSONFault {
        JSONFault(kind, at: self.index)
    }

    private var current: UInt8? { self.index < self.bytes.count ? self.bytes[self.index] : nil }

    private mutating func skipSpace() {
        while let byte = self.current, byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 { self.index += 1 }
    }

    private mutating func value(depth: Int) throws(JSONFault) -> JSONValue {
        self.values += 1
        guard self.values <= Self.maximumValues || !self.isFromOutside else { throw self.fault(.tooManyValues) }
        switch self.current {
        case UInt8(ascii: "{"): return try self.object(depth: depth)
        case UInt8(ascii: "["): return try self.array(depth: depth)
        case UInt8(ascii: "\""): return .string(try self.string())
        case UInt8(ascii: "t"): return try self.word("true", .bool(true))
        case UInt8(ascii: "f"): return try self.word("false", .bool(false))
        case UInt8(ascii: "n"): return try self.word("null", .null)
        default: return .number(try self.number())
        }
    }

    private mutating func word(_ word: StaticString, _ value: JSONValue) throws(JSONFault) -> JSONValue {
        let expected = Array("\(word)".utf8)
        guard self.bytes[self.index...].starts(with: expected) else { throw self.fault() }
        self.index += expected.count
        return value
    }

    private mutating func object(depth: Int) throws(JSONFault) -> JSONValue {
        guard depth < self.depth else { throw self.fault(.tooDeep) }
        self.index += 1
        var members: [JSONMember] = []
        // Filled once there are many members.
        var keys: Set<ExactText> = []
        self.skipSpace()
        if self.current == UInt8(ascii: "}") {
            self.index += 1
            return .object(members)
        }
        while true {
            self.skipSpace()
            guard self.current == UInt8(ascii: "\"") else { throw self.fault() }
            let start = self.index
            let key = try self.string()
            let isNew: Bool
            if members.count < Self.fewMembers {
                let length = key.utf8.count
                isNew = !members.contains { $0.key.utf8.count == length && ExactText($0.key) == ExactText(key) }
            } else {
                if keys.isEmpty { keys = Set(members.lazy.map { ExactText($0.key) }) }
                isNew = keys.insert(ExactText(key)).inserted
            }
            guard isNew else { throw JSONFault(.duplicateKey, at: start) }
            self.skipSpace()
            guard self.current == UInt8(ascii: ":") else { throw self.fault() }
            self.index += 1
            self.skipSpace()
            let member = JSONMember(key, try self.value(depth: depth + 1))
            let hasMore = try self.continues(before: UInt8(ascii: "}"))
            // Most objects have a few members; this saves two allocations. A lone member gets no
            // spare room.
            if hasMore, members.isEmpty { members.reserveCapacity(4) }
            members.append(member)
            guard hasMore else { return .object(members) }
        }
    }

    private mutating func array(depth: Int) throws(JSONFault) -> JSONValue {
        guard depth < self.depth else { throw self.fault(.tooDeep) }
        self.index += 1
        var elements: [JSONValue] = []
        self.skipSpace()
        if self.current == UInt8(ascii: "]") {
            self.index += 1
            return .array(elements)
        }
        while true {
            self.skipSpace()
            elements.append(try self.value(depth: depth + 1))
            guard try self.continues(before: UInt8(ascii: "]")) else { return .array(elements) }
        }
    }

    private mutating func continues(before end: UInt8) throws(JSONFault) -> Bool {
        self.skipSpace()
        guard let byte = self.current, byte == end || byte == UInt8(ascii: ",") else { throw self.fault() }
        self.index += 1
        return byte != end
    }

    private mutating func digits() throws(JSONFault) {
        let start = self.index
        while let byte = self.current, byte >= 0x30, byte <= 0x39 { self.index += 1 }
        guard self.index > start else { throw self.fault() }
    }

    private mutating func number() throws(JSONFault) -> String {
        let start = self.index
        if self.current == UInt8(ascii: "-") { self.index += 1 }
        let isZero = self.current == UInt8(ascii: "0")
        let first = self.index
        try self.digits()
        guard !isZero || self.index == first + 1 else { throw self.fault() }
        if self.current == UInt8(ascii: ".") {
            self.index += 1
            try self.digits()
        }
        let mantissa = start..<self.index
        if self.current == UInt8(ascii: "e") || self.current == UInt8(ascii: "E") {
            self.index += 1
            if self.current == UInt8(ascii: "+") || self.current == UInt8(ascii: "-") { self.index += 1 }
            let exponent = self.index
            try self.digits()
            guard let value = Int(self.text(exponent..<self.index)), value <= Self.maximumExponent else {
                throw JSONFault(.exponent, at: start)
            }
            self.padding -= value
            guard self.padding >= 0 else { throw JSONFault(.length, at: start) }
        }
        let text = self.text(start..<self.index)
        // A number of up to 308 characters without an exponent is always within the range.
        if self.isFromOutside, self.index > mantissa.upperBound || mantissa.count > Self.maximumExponent {
            let hasDigit = self.bytes[mantissa].contains { (0x31...0x39).contains($0) }
            guard let value = Double(text), value.isFinite, value != 0 || !hasDigit else {
                throw JSONFault(.range, at: start)
            }
        }
        return text
    }

    private mutating func string() throws(JSONFault) -> String {
        let start = self.index
        let text = try self.characters()
        guard !self.isFromOutside || !CombiningMarks.areTooMany(in: text) else {
            throw JSONFault(.tooManyMarks, at: start)
        }
        return text
    }

    private mutating func characters() throws(JSONFault) -> String {
        self.index += 1
        let start = self.index
        while let byte = self.current, byte != UInt8(ascii: "\""), byte != UInt8(ascii: "\\"), byte >= 0x20 {
            self.index += 1
        }
        if self.current == UInt8(ascii: "\"") {
            defer { self.index += 1 }
            return self.text(start..<self.index)
        }
        var text = Array(self.bytes[start..<self.index])
        while let byte = self.current {
            switch byte {
            case UInt8(ascii: "\""):
                self.index += 1
                return String(decoding: text, as: UTF8.self)
            case UInt8(ascii: "\\"): text.append(contentsOf: String(try self.escape()).utf8)
            case 0..<0x20: throw self.fault()
            default:
                text.append(byte)
                self.index += 1
            }
        }
        throw self.fault()
    }

    private mutating func escape() throws(JSONFault) -> Unicode.Scalar {
        self.index += 1
        guard let byte = self.current else { throw self.fault() }
        self.index += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return Unicode.Scalar(byte)
        case UInt8(ascii: "b"): return "\u{8}"
        case UInt8(ascii: "f"): return "\u{C}"
        case UInt8(ascii: "n"): return "\n"
        case UInt8(ascii: "r"): return "\r"
        case UInt8(ascii: "t"): return "\t"
        case UInt8(ascii: "u"): return try self.unicodeEscape()
        default: throw self.fault()
        }
    }

    private mutating func unicodeEscape() throws(JSONFault) -> Unicode.Scalar {
        let unit = try self.codeUnit()
        guard unit != 0 else { throw self.fault(.nul) }
        if let scalar = Unicode.Scalar(unit) { return scalar }
        guard unit < 0xDC00, self.bytes[self.index...].starts(with: [UInt8(ascii: "\\"), UInt8(ascii: "u")]) else {
            throw self.fault(.loneSurrogate)
        }
        self.index += 2
        let low = try self.codeUnit()
        guard (0xDC00...0xDFFF).contains(low),
            let scalar = Unicode.Scalar(0x10000 + (UInt32(unit) - 0xD800) << 10 + (UInt32(low) - 0xDC00))
        else { throw self.fault(.loneSurrogate) }
        return scalar
    }

    private mutating func codeUnit() throws(JSONFault) -> UInt16 {
        var unit: UInt16 = 0
        for _ in 0..<4 {
            guard let digit = self.current?.hexDigit else { throw self.fault() }
            unit = unit << 4 | UInt16(digit)
            self.index += 1
        }
        return unit
    }
}

/// Why a text was refused as JSON.
package struct JSONFault: Error, Sendable, Equatable, CustomStringConvertible {
    package enum Kind: String, Sendable {
        case invalid = "not valid JSON"
        case invalidUTF8 = "not valid UTF-8"
        /// RFC 8259 section 8.2 leaves lone surrogates to the receiver; UTF-8 cannot encode one.
        case loneSurrogate = "JSON with a lone surrogate"
        /// PostgreSQL's text cannot hold it.
        case nul = "JSON with the character U+0000"
        case tooDeep = "JSON nested too deeply"
        case exponent = "JSON with an exponent beyond 308"
        /// Most clients read numbers as doubles, which would turn this one into infinity or 0.
        case range = "JSON with a number beyond the range of a double"
        /// PostgreSQL stores all digits.
        case length = "JSON that is too long with its exponents written out"
        case duplicateKey = "JSON with a key that occurs twice"
        case tooManyMarks = "JSON with more than 64 combining marks in a row"
        case tooManyValues = "JSON with more than 500,000 values"
    }

    package let kind: Kind
    /// Bytes from the start of the text.
    package let offset: Int

    init(_ kind: Kind, at offset: Int) {
        self.kind = kind
        self.offset = offset
    }

    package var description: String { "\(self.kind.rawValue) at byte \(self.offset)" }
}
