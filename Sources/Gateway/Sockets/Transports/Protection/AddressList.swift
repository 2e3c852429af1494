// Carillon · AddressList.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1

/// Addresses and networks, such as those of proxies whose word is believed.
package struct AddressList: Sendable {
    /// Hops of a request that are looked at; more than any sane chain of proxies has.
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

    /// An empty one.
    package init() {}

    /// Reads addresses and networks such as `10.0.0.0/8`.
    ///
    /// - Throws: ``AddressFault`` that names the one that is neither.
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

    package func contains(_ address: ClientAddress) -> Bool {
        self.networks.contains { $0.contains(address) }
    }

    /// Who sent a request: the peer, or the last address before the proxies of this list that `X-Forwarded-For` names.
    ///
    /// What stands left of an address that is not trusted may be invented, and is not looked at.
    package func client(of head: HTTPRequestHead, peer: SocketAddress?) -> ClientAddress? {
        guard var client = ClientAddress(peer) else { return nil }
        guard !self.networks.isEmpty, self.contains(client) else { return client }
        let hops = head.headers[canonicalForm: "x-forwarded-for"].reversed().prefix(Self.longestChain)
        for hop in hops {
            guard let address = ClientAddress(hop) else { break }
            client = address
            guard self.contains(address) else { break }
        }
        return client
    }
}

/// A text that is no address or network.
package struct AddressFault: Error, Sendable, CustomStringConvertible {
    let text: String

    package var description: String { "\(self.text) is no IP address or network, such as 10.0.0.0/8" }
}
