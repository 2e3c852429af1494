// Carillon · EncryptionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Crypto
import Sandbox
import Testing

@Suite("Encryption for browsers", .timeLimit(.minutes(10)))
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

    @Test("The example of RFC 8291, byte for byte, as often as one likes")
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

    @Test("What is encrypted opens, whatever its length", arguments: [0, 1, 15, 16, 17, 1_000, 3_993])
    func lengths(count: Int) throws {
        let keys = SandboxSubscription.Keys(id: "length-\(count)")
        let message = (0..<count).map { UInt8(truncatingIfNeeded: $0 * 7) }
        let body = try self.encrypt(message, to: keys)
        #expect(body.count == 103 + count)
        #expect(try keys.open(body) == message)
    }

    @Test("One byte more does not fit what a push service has to take")
    func tooLong() throws {
        let point = try Vector.bytes(Vector.publicKey)
        #expect(WebPushEncryption.maximumMessageBytes + 103 == 4_096)
        #expect(try self.fault(message: [UInt8](repeating: 1, count: 3_994), publicKey: point) == .message)
    }

    @Test("Each message has a salt and a key of its own")
    func fresh() throws {
        let keys = SandboxSubscription.Keys(id: "fresh")
        let headers = try (0..<200).map { _ in Array(try self.encrypt(Vector.message, to: keys).prefix(86)) }
        #expect(Set(headers.map { Array($0.prefix(16)) }).count == 200)
        #expect(Set(headers.map { Array($0.suffix(65)) }).count == 200)
        #expect(headers.allSatisfy { Array($0[16..<21]) == [0, 0, 0x10, 0, 65] })
    }

    @Test("A key that is no uncompressed point of the curve is refused, and the next message goes out")
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

    @Test("A given private key must be one")
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

    @Test("Many at once do not mix")
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
