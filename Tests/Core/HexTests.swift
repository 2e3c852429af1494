// Carillon · HexTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Hexadecimal", .timeLimit(.minutes(10)))
struct HexTests {
    @Test("writes each byte as two lower-case digits")
    func written() {
        #expect(([0x00, 0x0F, 0x10, 0xAB, 0xFF] as [UInt8]).hex == "000f10abff")
        #expect([UInt8]().hex == "")
    }

    @Test("reads ASCII digits of either case, and no other byte")
    func read() {
        #expect("0189afAF".utf8.map(\.hexDigit) == [0, 1, 8, 9, 10, 15, 10, 15])
        #expect("/:@G`g\u{FF11}".utf8.allSatisfy { $0.hexDigit == nil })
    }
}
