// Carillon · DecryptionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Sandbox
import Testing

/// The half that tests and the sandbox use, by the published vectors.
@Suite("Decryption as browsers do it", .timeLimit(.minutes(10)))
struct DecryptionTests {
    @Test(
        "The examples of RFC 8188, of one record and of two",
        arguments: [
            (
                "yqdlZ-tYemfogSmv7Ws5PQ",
                "I1BsxtFttlv3u_Oo94xnmwAAEAAA-NAVub2qFgBEuQKRapoZu-IxkIva3MEB1PD-ly8Thjg", "", 1
            ),
            (
                "BO3ZVPxUlnLORbVGMpbT1Q",
                "uNCkWiNYzKTnBN9ji3-qWAAAABkCYTHOG8chz_gnvgOqdGYovxyjuqRyJFjEDyoF1Fvkj6hQPdPHI51OEUKEpgz3SsLWIqS_uA",
                "a1",
                2
            ),
        ]
    )
    func examples(key: String, body: String, keyID: String, records: Int) throws {
        let content = try EncryptedContent(try Vector.bytes(body))
        #expect(content.keyID == Array(keyID.utf8))
        #expect(content.recordCount == records)
        let opened = try content.open(material: try Vector.bytes(key))
        #expect(String(decoding: opened, as: UTF8.self) == "I am the walrus")
    }

    @Test("The example of RFC 8291 opens, and with one bit changed anywhere it does not")
    func message() throws {
        let browser = try Vector.browser()
        let body = try Vector.bytes(Vector.body)
        #expect(try browser.open(body) == Vector.message)
        for index in body.indices where !(16..<20).contains(index) {
            var changed = body
            changed[index] ^= 1
            #expect(throws: EncryptedContent.Failure.self, "byte \(index)") { try browser.open(changed) }
        }
        for count in [0, 20, 21, 85, 86, 100, body.count - 1] {
            #expect(throws: EncryptedContent.Failure.self) { try browser.open(Array(body.prefix(count))) }
        }
    }
}
