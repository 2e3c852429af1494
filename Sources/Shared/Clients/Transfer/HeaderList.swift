// Carillon · HeaderList.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl

/// The header lines of one request, laid out as the list that libcurl reads.
///
/// The memory is used again for the next request, since building the list afresh takes two allocations for each line.
/// libcurl neither changes nor frees it, and the handle that owns this fills it only between transfers; ``fill(_:)``
/// reserves what it writes.
final class HeaderList {
    private static let maximumBytes = 65_536
    private static let separator: StaticString = ": "
    /// Fields that libcurl would add by itself, which a name with a colon and no value prevents: a form's content type, a
    /// wish for anything, and before a long body the question whether to go on, for whose answer it would wait.
    private static let unwanted = ["Accept", "Content-Type", "Expect"]

    private var text = UnsafeMutableBufferPointer<CChar>.allocate(capacity: 2_048)
    private var nodes = UnsafeMutableBufferPointer<curl_slist>.allocate(capacity: 16)
    private var used = 0
    private var count = 0

    deinit {
        self.text.deallocate()
        self.nodes.deallocate()
    }

    /// The list, valid until the next ``fill(_:)``, which never leaves it empty.
    var first: UnsafeMutablePointer<curl_slist>? { self.nodes.baseAddress }

    /// Replaces the lines; false if one of them cannot be sent as it is, which a line break in a token would be.
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
            // A name with a semicolon is libcurl's form of a field without a value.
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

    /// A token of RFC 9110 section 5.6.2, or nearly so: what could end the name or the line is out.
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
