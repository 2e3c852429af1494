// Carillon · TransferBuffers.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl

/// The header lines of one request, laid out as the list that libcurl reads.
///
/// The memory is reused, since libcurl's own list takes two allocations a line. That is sound:
/// libcurl neither changes nor frees it, the owning handle fills it only between transfers, and
/// ``fill(_:)`` reserves all that it writes.
final class HeaderList {
    private static let maximumBytes = 65_536
    private static let separator: StaticString = ": "
    /// Fields that libcurl would add; a name with a colon and no value suppresses them.
    ///
    /// `Expect` matters most: libcurl would wait for an answer before it sends a long body.
    private static let unwanted = ["Accept", "Content-Type", "Expect"]

    private var text = UnsafeMutableBufferPointer<CChar>.allocate(capacity: 2_048)
    private var nodes = UnsafeMutableBufferPointer<curl_slist>.allocate(capacity: 16)
    private var used = 0
    private var count = 0

    deinit {
        self.text.deallocate()
        self.nodes.deallocate()
    }

    /// The list, valid until the next ``fill(_:)``, and never empty after one.
    var first: UnsafeMutablePointer<curl_slist>? { self.nodes.baseAddress }

    /// Replaces the lines; returns false if a name or value cannot be sent, such as a token with a
    /// line break.
    func fill(_ headers: [(name: String, value: String)]) -> Bool {
        var length = 0
        for (name, value) in headers {
            length += name.utf8.count + value.utf8.count + Self.separator.utf8CodeUnitCount + 1
        }
        guard length <= Self.maximumBytes else { return false }
        self.reserve(bytes: length + 64, nodes: headers.count + Self.unwanted.count)

        for name in Self.unwanted { self.append(name, suffix: ":") }
        for (name, value) in headers {
            guard Self.isName(name), Self.isValue(value) else { return false }
            // libcurl takes a name with a semicolon for a field without a value.
            if value.utf8.allSatisfy({ $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }) {
                self.append(name, suffix: ";")
            } else {
                self.append(name, suffix: Self.separator, value)
            }
        }
        return true
    }

    private func reserve(bytes: Int, nodes: Int) {
        self.used = 0
        self.count = 0
        if bytes > self.text.count {
            self.text.deallocate()
            self.text = .allocate(capacity: bytes)
        }
        if nodes > self.nodes.count {
            self.nodes.deallocate()
            self.nodes = .allocate(capacity: nodes)
        }
    }

    private func append(_ name: String, suffix: StaticString, _ value: String = "") {
        let start = self.text.baseAddress?.advanced(by: self.used)
        self.write(name)
        for index in 0..<suffix.utf8CodeUnitCount {
            self.text[self.used] = CChar(bitPattern: suffix.utf8Start[index])
            self.used += 1
        }
        self.write(value)
        self.text[self.used] = 0
        self.used += 1
        self.nodes[self.count] = curl_slist(data: start, next: nil)
        if self.count > 0 { self.nodes[self.count - 1].next = self.nodes.baseAddress?.advanced(by: self.count) }
        self.count += 1
    }

    private func write(_ part: String) {
        var part = part
        part.withUTF8 { bytes in
            let rest = UnsafeMutableRawBufferPointer(rebasing: UnsafeMutableRawBufferPointer(self.text)[self.used...])
            rest.copyBytes(from: bytes)
            self.used += bytes.count
        }
    }

    /// Whether the name is a token (RFC 9110 section 5.6.2), checked only for characters that could
    /// end the name or the line.
    private static func isName(_ name: String) -> Bool {
        !name.isEmpty
            && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: ":") && $0 != UInt8(ascii: ";") }
    }

    private static func isValue(_ value: String) -> Bool {
        var value = value
        return value.withUTF8 { bytes in
            for byte in bytes where byte == 0 || byte == UInt8(ascii: "\r") || byte == UInt8(ascii: "\n") {
                return false
            }
            return true
        }
    }
}

/// Collects one response within limits; its memory is reused for the next.
struct ResponseBuffer {
    /// The body capacity kept between responses; a larger buffer is freed.
    private static let keptCapacity = 65_536
    private static let maximumHeaderBytes = 65_536

    private(set) var headers: [UInt8] = []
    private(set) var body: [UInt8] = []
    /// Whether the line that ends the headers has arrived.
    private(set) var hasAllHeaders = false
    /// Whether a limit was exceeded and the rest refused.
    private(set) var isTooLarge = false
    private var maximumBody = 0

    /// Prepares for the next response.
    mutating func clear(maximumBody: Int) {
        self.headers.removeAll(keepingCapacity: true)
        self.body.removeAll(keepingCapacity: self.body.capacity <= Self.keptCapacity)
        self.hasAllHeaders = false
        self.isTooLarge = false
        self.maximumBody = maximumBody
    }

    /// Appends one header line with its line break; returns false if it exceeds the limit.
    mutating func append(header line: UnsafeRawBufferPointer) -> Bool {
        // A status line starts a new block: after "100 Continue" the next block counts.
        if line.starts(with: "HTTP/".utf8) {
            self.headers.removeAll(keepingCapacity: true)
            self.hasAllHeaders = false
        }
        guard self.headers.count + line.count <= Self.maximumHeaderBytes else {
            self.isTooLarge = true
            return false
        }
        self.hasAllHeaders = self.hasAllHeaders || line.elementsEqual("\r\n".utf8)
        self.headers.append(contentsOf: line)
        return true
    }

    /// Appends as much of the part as fits; returns false if some did not.
    mutating func append(body part: UnsafeRawBufferPointer) -> Bool {
        let room = max(0, self.maximumBody - self.body.count)
        self.body.append(contentsOf: part.prefix(room))
        self.isTooLarge = self.isTooLarge || part.count > room
        return !self.isTooLarge
    }
}
