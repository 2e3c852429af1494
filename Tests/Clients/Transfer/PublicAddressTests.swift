// Carillon · PublicAddressTests.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc
import Testing

@testable import Clients

@Suite("Public addresses")
struct PublicAddressTests {
    private static func bytes(_ text: String) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 16)
        let isLong = text.contains(":")
        #expect(inet_pton(isLong ? AF_INET6 : AF_INET, text, &bytes) == 1)
        return Array(bytes.prefix(isLong ? 16 : 4))
    }

    @Test(
        "Internet addresses are public",
        arguments: [
            "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "192.167.1.1",
            "223.255.255.254",
            "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1",
        ]
    )
    func isPublic(address: String) {
        #expect(PublicAddress.contains(Self.bytes(address)[...]))
    }

    @Test(
        "addresses of this machine, private networks and special purposes are not public",
        arguments: [
            "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.255.255", "169.254.169.254", "172.16.0.1",
            "172.31.255.255", "192.0.2.1", "192.168.0.1", "198.19.0.1", "224.0.0.1", "255.255.255.255",
            "::", "::1", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1", "2001::1", "::ffff:127.0.0.1",
            "::ffff:10.0.0.1", "64:ff9b::192.168.0.1", "2002:7f00:1::1", "::127.0.0.1",
        ]
    )
    func isPrivate(address: String) {
        #expect(!PublicAddress.contains(Self.bytes(address)[...]))
    }

    @Test("invalid addresses are not public")
    func nothing() {
        #expect(!PublicAddress.contains([]))
    }
}
