// Carillon · ClientAddress.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import NIOCore

/// An IP address as bytes: 4, or 16 for IPv6; an IPv4 address inside IPv6 (RFC 4291 section 2.5.5.2) counts as IPv4.
package struct ClientAddress: Hashable, Sendable {
    private static let mapped: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]

    let bytes: [UInt8]

    /// Nil for a Unix socket.
    package init?(_ address: SocketAddress?) {
        guard let text = address?.ipAddress else { return nil }
        self.init(text)
    }

    /// Nil if it is none.
    package init?(_ text: some StringProtocol) {
        if let bytes = Self.parse(String(text), family: AF_INET, count: 4) {
            self.bytes = bytes
        } else if let bytes = Self.parse(String(text), family: AF_INET6, count: 16) {
            self.bytes = bytes.starts(with: Self.mapped) ? Array(bytes.dropFirst(12)) : bytes
        } else {
            return nil
        }
    }

    private static func parse(_ text: String, family: CInt, count: Int) -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: count)
        // `inet_pton` writes exactly as many bytes as the family's addresses have, into the array's own memory.
        let isParsed = bytes.withUnsafeMutableBytes { inet_pton(family, text, $0.baseAddress) == 1 }
        return isParsed ? bytes : nil
    }

    /// What one client may choose from freely: an IPv4 address, or an IPv6 network of 64 bits.
    var share: [UInt8] { self.bytes.count == 16 ? Array(self.bytes.prefix(8)) : self.bytes }
}
