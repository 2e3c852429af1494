// Carillon · ResponseBuffer.swift
// SPDX-License-Identifier: Apache-2.0

/// Gathers one response, within bounds; its memory serves the next one.
struct ResponseBuffer {
    /// Kept between responses; what one needs beyond it is given back.
    private static let keptCapacity = 65_536
    private static let maximumHeaderBytes = 65_536

    private(set) var headers: [UInt8] = []
    private(set) var body: [UInt8] = []
    /// Whether the line that ends the headers has come.
    private(set) var hasAllHeaders = false
    /// Whether a bound was reached, and the rest refused.
    private(set) var isTooLarge = false
    private var maximumBody = 0

    /// Makes ready for another response.
    mutating func clear(maximumBody: Int) {
        self.headers.removeAll(keepingCapacity: true)
        self.body.removeAll(keepingCapacity: self.body.capacity <= Self.keptCapacity)
        self.hasAllHeaders = false
        self.isTooLarge = false
        self.maximumBody = maximumBody
    }

    /// Takes one header line with its end; false if it is one too many.
    mutating func append(header line: UnsafeRawBufferPointer) -> Bool {
        // A status line begins a block: after "100 Continue" the next one counts.
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

    /// Takes a part of the body, as much of it as there is room for; false if there was not enough.
    mutating func append(body part: UnsafeRawBufferPointer) -> Bool {
        let room = max(0, self.maximumBody - self.body.count)
        self.body.append(contentsOf: part.prefix(room))
        self.isTooLarge = self.isTooLarge || part.count > room
        return !self.isTooLarge
    }
}
