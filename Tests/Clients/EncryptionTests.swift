// Carillon · EncryptionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Sandbox
import Testing

@testable import Clients

/// The example of RFC 8291 section 5 and appendix A.
enum Vector {
    static let message = Array("When I grow up, I want to be a watermelon".utf8)
    static let privateKey = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
    static let publicKey =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    static let secret = "BTBZMqHH6r4Tts7J_aSIgg"
    static let ownPrivateKey = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
    static let salt = "DGv6ra1nlYgDCS1FRnbzlw"
    static let body =
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl"
        + "7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"

    static func bytes(_ text: String) throws -> [UInt8] { try #require(Base64.url.decode(text.utf8)) }

    /// Returns the browser of the example.
    static func browser() throws -> SandboxSubscription.Keys {
        let key = try P256.KeyAgreement.PrivateKey(rawRepresentation: Self.bytes(Self.privateKey))
        return SandboxSubscription.Keys(privateKey: key, secret: try Self.bytes(Self.secret))
    }
}

@Suite("Web Push encryption", .timeLimit(.minutes(10)))
struct EncryptionTests {
    private let encryption = try? WebPushEncryption()

    private func encrypt(
        _ message: [UInt8], to keys: SandboxSubscription.Keys, _ ephemeral: WebPushEncryption.Ephemeral? = nil
    ) throws -> [UInt8] {
        try #require(self.encryption).encrypt(
            message, publicKey: Array(keys.privateKey.publicKey.x963Representation), secret: keys.secret,
            ephemeral: ephemeral)
    }

    private func fault(
        message: [UInt8] = [1], publicKey: [UInt8], secret: [UInt8] = [UInt8](repeating: 1, count: 16),
        ephemeral: WebPushEncryption.Ephemeral? = nil
    ) throws -> WebPushEncryptionFault? {
        let encryption = try #require(self.encryption)
        do throws(WebPushEncryptionFault) {
            _ = try encryption.encrypt(message, publicKey: publicKey, secret: secret, ephemeral: ephemeral)
            return nil
        } catch {
            return error
        }
    }

    @Test("the RFC 8291 example is reproduced byte for byte, repeatedly")
    func example() throws {
        let ephemeral = WebPushEncryption.Ephemeral(
            salt: try Vector.bytes(Vector.salt), privateKey: try Vector.bytes(Vector.ownPrivateKey))
        let encryption = try #require(self.encryption)
        for _ in 0..<3 {
            let body = try encryption.encrypt(
                Vector.message, publicKey: try Vector.bytes(Vector.publicKey),
                secret: try Vector.bytes(Vector.secret), ephemeral: ephemeral)
            #expect(body == (try Vector.bytes(Vector.body)))
        }
    }

    @Test("encrypted messages of any length decrypt", arguments: [0, 1, 15, 16, 17, 1_000, 3_993])
    func lengths(count: Int) throws {
        let keys = SandboxSubscription.Keys(id: "length-\(count)")
        let message = (0..<count).map { UInt8(truncatingIfNeeded: $0 * 7) }
        let body = try self.encrypt(message, to: keys)
        #expect(body.count == 103 + count)
        #expect(try keys.open(body) == message)
    }

    @Test("a message one byte over the limit is refused")
    func tooLong() throws {
        let point = try Vector.bytes(Vector.publicKey)
        #expect(WebPushEncryption.maximumMessageBytes + 103 == 4_096)
        #expect(try self.fault(message: [UInt8](repeating: 1, count: 3_994), publicKey: point) == .message)
    }

    @Test("each message has its own salt and key")
    func fresh() throws {
        let keys = SandboxSubscription.Keys(id: "fresh")
        let headers = try (0..<200).map { _ in Array(try self.encrypt(Vector.message, to: keys).prefix(86)) }
        #expect(Set(headers.map { Array($0.prefix(16)) }).count == 200)
        #expect(Set(headers.map { Array($0.suffix(65)) }).count == 200)
        #expect(headers.allSatisfy { Array($0[16..<21]) == [0, 0, 0x10, 0, 65] })
    }

    @Test("a key that is not an uncompressed point is refused, and the next message works")
    func badKeys() throws {
        let point = try Vector.bytes(Vector.publicKey)
        var off = point
        off[64] ^= 1
        let compressed: [UInt8] = [2 + (point[64] & 1)] + point[1..<33]
        let beyond: [UInt8] = [4] + [UInt8](repeating: 0xFF, count: 64)
        let hybrid: [UInt8] = [6 + (point[64] & 1)] + point.dropFirst()
        let zero: [UInt8] = [0] + point.dropFirst()
        let keys: [[UInt8]] = [[], [0], zero, off, compressed, beyond, hybrid, Array(point.dropLast()), point + [0]]
        for key in keys {
            #expect(try self.fault(publicKey: key) == .publicKey)
        }
        for count in [0, 15, 17] {
            let secret = [UInt8](repeating: 1, count: count)
            #expect(try self.fault(publicKey: point, secret: secret) == .secret)
        }
        let next = SandboxSubscription.Keys(id: "after")
        #expect(try next.open(try self.encrypt([7], to: next)) == [7])
    }

    @Test("an invalid private key is refused")
    func badEphemeral() throws {
        let point = try Vector.bytes(Vector.publicKey)
        let salt = try Vector.bytes(Vector.salt)
        let good = try Vector.bytes(Vector.ownPrivateKey)
        for (salt, key) in [
            (salt, [UInt8](repeating: 0, count: 32)), (salt, [UInt8](repeating: 0xFF, count: 32)),
            (salt, Array(good.dropLast())), (Array(salt.dropLast()), good),
        ] {
            #expect(try self.fault(publicKey: point, ephemeral: .init(salt: salt, privateKey: key)) == .ephemeral)
        }
    }

    @Test("concurrent messages do not mix")
    func concurrent() async throws {
        let encryption = try #require(self.encryption)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<8 {
                group.addTask {
                    let keys = SandboxSubscription.Keys(id: "task-\(number)")
                    let point = Array(keys.privateKey.publicKey.x963Representation)
                    for round in 0..<50 {
                        let message = Array("\(number) \(round)".utf8)
                        let body = try encryption.encrypt(message, publicKey: point, secret: keys.secret)
                        #expect(try keys.open(body) == message)
                    }
                }
            }
            try await group.waitForAll()
        }
    }
}

/// Checks the decryption that tests and the sandbox use against published vectors.
@Suite("Web Push decryption", .timeLimit(.minutes(10)))
struct DecryptionTests {
    @Test(
        "the RFC 8188 examples with one and two records decrypt",
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

    @Test("the RFC 8291 example decrypts, but not with any one bit changed")
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
