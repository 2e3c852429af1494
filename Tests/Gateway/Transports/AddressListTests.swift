// Carillon · AddressListTests.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1
import Sockets
import Testing

@Suite("Addresses of clients", .timeLimit(.minutes(10)))
struct AddressListTests {
    @Test("Only proxies that are trusted are believed, from the right")
    func forwarded() throws {
        let list = try AddressList(["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"])
        let table: [(peer: String, fields: [String], client: String)] = [
            ("203.0.113.1", [], "203.0.113.1"), ("203.0.113.1", ["198.51.100.1"], "203.0.113.1"),
            ("10.1.2.3", [], "10.1.2.3"), ("10.1.2.3", ["198.51.100.1"], "198.51.100.1"),
            ("10.1.2.3", ["1.1.1.1, 198.51.100.1, 192.0.2.7"], "198.51.100.1"),
            ("10.1.2.3", ["1.1.1.1", "198.51.100.1,10.9.9.9"], "198.51.100.1"),
            ("10.1.2.3", ["nonsense, 10.4.4.4"], "10.4.4.4"), ("10.1.2.3", ["nonsense"], "10.1.2.3"),
            ("2001:db8::1", ["2001:db9::1"], "2001:db9::1"), ("::ffff:10.1.2.3", ["198.51.100.1"], "198.51.100.1"),
        ]
        for row in table {
            var head = HTTPRequestHead(version: .http1_1, method: .GET, uri: "/")
            for field in row.fields { head.headers.add(name: "x-forwarded-for", value: field) }
            let peer = try SocketAddress(ipAddress: row.peer, port: 1)
            #expect(list.client(of: head, peer: peer) == ClientAddress(row.client), "\(row)")
        }
    }

    @Test("Networks end where their length says", arguments: [0, 1, 7, 8, 9, 31, 32])
    func lengths(length: Int) throws {
        let list = try AddressList(["255.255.255.255/\(length)"])
        for bit in 0..<32 {
            let value = UInt32.max ^ (0x8000_0000 >> UInt32(bit))
            let text = [24, 16, 8, 0].map { "\(value >> UInt32($0) & 0xFF)" }.joined(separator: ".")
            let address = try #require(ClientAddress(text))
            #expect(list.contains(address) == (bit >= length), "\(text)/\(length)")
        }
    }

    @Test(
        "What is no network is named", arguments: ["", "10.0.0.0/33", "10.0.0/8", "host", "::1/129", "1.1.1.1/x", "/8"])
    func faults(text: String) {
        #expect(throws: AddressFault.self) { try AddressList(["10.0.0.1", text]) }
    }

    @Test("A tally counts up to its bound, IPv6 by networks of 64 bits, and forgets what is given back")
    func tally() throws {
        let tally = AddressTally(limit: 2)
        let addresses = try ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1"]
            .map { try #require(ClientAddress($0)) }
        #expect(addresses.map { tally.take($0) } == [true, true, true, true, false, true])
        #expect([tally.take(addresses[0]), tally.take(addresses[0])] == [true, false])
        tally.giveBack(addresses[0])
        #expect(tally.take(addresses[0]))
    }
}
