// Carillon · ClientAddress.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import NIOCore
import NIOHTTP1

/// An IP address as bytes, 4 or 16; an IPv4 address inside IPv6 (RFC 4291, section 2.5.5.2) counts
/// as IPv4.
struct ClientAddress: Hashable, Sendable {
    private static let mapped: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]

    let bytes: [UInt8]

    /// Nil for a Unix socket.
    init?(_ address: SocketAddress?) {
        guard let text = address?.ipAddress else { return nil }
        self.init(text)
    }

    /// Nil if the text is not an address.
    init?(_ text: some StringProtocol) {
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
        // `inet_pton` writes exactly as many bytes as the family's addresses have, into the array's
        // own memory.
        let isParsed = bytes.withUnsafeMutableBytes { inet_pton(family, text, $0.baseAddress) == 1 }
        return isParsed ? bytes : nil
    }

    /// The range that one client can choose from: an IPv4 address, or an IPv6 network of 64 bits.
    var share: [UInt8] { self.bytes.count == 16 ? Array(self.bytes.prefix(8)) : self.bytes }
}

/// Addresses and networks, such as those of trusted proxies.
package struct AddressList: Sendable {
    /// Hops of a request that are read; more than any sane chain of proxies has.
    private static let longestChain = 32

    private struct Network: Sendable {
        let bytes: [UInt8]
        let length: Int

        func contains(_ address: ClientAddress) -> Bool {
            guard address.bytes.count == self.bytes.count else { return false }
            return (0..<self.length).allSatisfy { bit in
                (self.bytes[bit / 8] ^ address.bytes[bit / 8]) & (0x80 >> UInt8(bit % 8)) == 0
            }
        }
    }

    private var networks: [Network] = []

    /// Makes an empty list.
    package init() {}

    /// Reads addresses and networks such as `10.0.0.0/8`.
    ///
    /// - Throws: ``AddressFault`` with the text that is neither.
    package init(_ texts: [String]) throws(AddressFault) {
        for text in texts {
            let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
            guard let address = ClientAddress(parts[0]) else { throw AddressFault(text: text) }
            let longest = address.bytes.count * 8
            var length = longest
            if parts.count == 2 {
                guard let given = Int(parts[1]), (0...longest).contains(given) else { throw AddressFault(text: text) }
                length = given
            }
            self.networks.append(Network(bytes: address.bytes, length: length))
        }
    }

    func contains(_ address: ClientAddress) -> Bool {
        self.networks.contains { $0.contains(address) }
    }

    /// The client of a request: the peer, or the last address before the trusted proxies in
    /// `X-Forwarded-For`.
    ///
    /// An untrusted hop may have invented the entries to its left, so they are ignored.
    func client(of head: HTTPRequestHead, peer: SocketAddress?) -> ClientAddress? {
        guard var client = ClientAddress(peer) else { return nil }
        guard !self.networks.isEmpty, self.contains(client) else { return client }
        let hops = head.headers[canonicalForm: "x-forwarded-for"].reversed().prefix(Self.longestChain)
        for hop in hops {
            guard let address = ClientAddress(Self.withoutPort(hop)) else { break }
            client = address
            guard self.contains(address) else { break }
        }
        return client
    }

    /// Cuts the port that some proxies write: `192.0.2.1:443` or `[2001:db8::1]:443`.
    private static func withoutPort(_ hop: Substring) -> Substring {
        if hop.first == "[" { return hop.dropFirst().prefix { $0 != "]" } }
        let parts = hop.split(separator: ":", omittingEmptySubsequences: false)
        return parts.count == 2 ? parts[0] : hop
    }
}

/// A text that is not an address or network.
package struct AddressFault: Error, Sendable, CustomStringConvertible {
    let text: String

    package var description: String { "\(self.text) is not an IP address or network such as 10.0.0.0/8" }
}
