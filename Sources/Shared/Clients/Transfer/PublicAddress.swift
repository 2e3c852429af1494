// Carillon · PublicAddress.swift
// SPDX-License-Identifier: Apache-2.0

/// Tells public Internet addresses from those of this machine, private networks and special
/// purposes (the registries of RFC 6890).
///
/// `openPublicSocket` in `EasyHandle.swift` refuses connections to the others.
enum PublicAddress {
    /// IPv4 networks that are not public, by their first bytes and prefix length.
    private static let specialIPv4: [(prefix: [UInt8], bits: Int)] = [
        ([0], 8), ([10], 8), ([100, 64], 10), ([127], 8), ([169, 254], 16), ([172, 16], 12), ([192, 0, 0], 24),
        ([192, 0, 2], 24), ([192, 88, 99], 24), ([192, 168], 16), ([198, 18], 15), ([198, 51, 100], 24),
        ([203, 0, 113], 24), ([224], 4), ([240], 4),
    ]

    /// Returns whether the address is public.
    ///
    /// - Parameter address: 4 or 16 bytes, most significant first.
    static func contains(_ address: ArraySlice<UInt8>) -> Bool {
        let bytes = Array(address)
        switch bytes.count {
        case 4: return !Self.specialIPv4.contains { Self.isIn(bytes, $0.prefix, bits: $0.bits) }
        case 16: return Self.containsIPv6(bytes)
        default: return false
        }
    }

    private static func containsIPv6(_ bytes: [UInt8]) -> Bool {
        // IPv6 forms of an IPv4 address: mapped (RFC 4291), NAT64 (RFC 6052) and 6to4 (RFC 3056).
        if bytes.prefix(12) == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]
            || bytes.prefix(12) == [0x00, 0x64, 0xFF, 0x9B, 0, 0, 0, 0, 0, 0, 0, 0]
        {
            return Self.contains(bytes[12...])
        }
        if bytes.prefix(2) == [0x20, 0x02] { return Self.contains(bytes[2..<6]) }
        // Global unicast is 2000::/3, minus Teredo and benchmarking (2001::/23) and documentation.
        return Self.isIn(bytes, [0x20], bits: 3) && !Self.isIn(bytes, [0x20, 0x01, 0x00], bits: 23)
            && !Self.isIn(bytes, [0x20, 0x01, 0x0D, 0xB8], bits: 32) && !Self.isIn(bytes, [0x3F, 0xFF, 0x00], bits: 20)
    }

    private static func isIn(_ bytes: [UInt8], _ prefix: [UInt8], bits: Int) -> Bool {
        for (index, (byte, wanted)) in zip(bytes, prefix).enumerated() {
            let rest = bits - index * 8
            let mask: UInt8 = rest >= 8 ? 0xFF : ~(0xFF >> UInt8(max(rest, 0)))
            guard byte & mask == wanted & mask else { return false }
        }
        return true
    }
}
