// Carillon · Base64Tests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@Suite("Base64", .timeLimit(.minutes(10)))
struct Base64Tests {
    @Test("encodes and decodes the test vectors of RFC 4648, section 10")
    func vectors() {
        let vectors = [
            ("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ]
        for (plain, padded) in vectors {
            let bytes = Array(plain.utf8)
            #expect(Base64.standard.encode(bytes) == padded)
            #expect(Base64.standard.decodePadded(padded.utf8) == bytes)
            let bare = padded.filter { $0 != "=" }
            #expect(Base64.url.encode(bytes) == bare)
            #expect(Base64.url.decode(bare.utf8) == bytes)
        }
    }

    @Test("has two alphabets, which differ in two characters")
    func alphabets() {
        let bytes: [UInt8] = [0xFB, 0xFF, 0xBF]
        #expect(Base64.standard.encode(bytes) == "+/+/")
        #expect(Base64.url.encode(bytes) == "-_-_")
        #expect(Base64.standard.decodePadded("-_-_".utf8) == nil)
        #expect(Base64.url.decode("+/+/".utf8) == nil)
    }
}
