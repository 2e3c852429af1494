// Carillon · WebPushTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Crypto
import Foundation
import Sandbox
import Testing

@Suite("Web Push", .sandbox, .timeLimit(.minutes(10)))
struct WebPushTests {
    /// A change to a valid request.
    struct Change: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var method = "POST"
        /// An empty value removes a header.
        var headers: [String: String] = [:]
        var audience: String?
        var lifetime = 3_600
        var subject: String? = "mailto:push@example.com"
        var scheme = "vapid"
        var hasOtherKey = false
        var hasOtherSignature = false
        var body: [UInt8]?
        let status: Int

        init(_ description: String, _ status: Int, _ change: (inout Change) -> Void = { _ in }) {
            self.testDescription = description
            self.status = status
            change(&self)
        }
    }

    /// A body in the form of `aes128gcm` that cannot be decrypted.
    private static func body(_ count: Int = 17) -> [UInt8] {
        let salt = [UInt8](repeating: 7, count: 16)
        let point: [UInt8] = [4] + [UInt8](repeating: 9, count: 64)
        return salt + [0, 0, 0x10, 0, 65] + point + [UInt8](repeating: 1, count: count)
    }

    private static func send(_ id: String, _ change: Change) async throws -> CurlReply {
        let client = try #require(SandboxScope.client)
        let sandbox = client.sandbox
        let pem = try String(contentsOfFile: sandbox.vapidKeyPath, encoding: .utf8)
        let key = change.hasOtherKey ? P256.Signing.PrivateKey() : try P256.Signing.PrivateKey(pemRepresentation: pem)
        var claims: [String: Any] = [
            "aud": change.audience ?? sandbox.url, "exp": Int(Date().timeIntervalSince1970) + change.lifetime,
        ]
        if let subject = change.subject { claims["sub"] = subject }
        let unsigned = try [["typ": "JWT", "alg": "ES256"], claims].map {
            Base64.url.encode(try JSONSerialization.data(withJSONObject: $0))
        }.joined(separator: ".")
        let signer = change.hasOtherSignature ? P256.Signing.PrivateKey() : key
        let signature = try signer.signature(for: Data(unsigned.utf8)).rawRepresentation
        var headers = [
            "authorization": "\(change.scheme) t=\(unsigned).\(Base64.url.encode(signature)), "
                + "k=\(Base64.url.encode(key.publicKey.x963Representation))",
            "ttl": "60", "content-encoding": "aes128gcm", "content-type": "application/octet-stream",
        ]
        headers.merge(change.headers) { $1 }
        let file = FileManager.default.temporaryDirectory.appendingPathComponent("push-\(UUID().uuidString)")
        try Data(change.body ?? Self.body()).write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        return try await CurlReply.get(
            ["--http2", "--cacert", sandbox.caPath, "-X", change.method, "--data-binary", "@\(file.path)"]
                + headers.flatMap { ["-H", "\($0.key):" + ($0.value.isEmpty ? "" : " \($0.value)")] }
                + [sandbox.subscription(id).endpoint])
    }

    /// Encrypts a text for a subscription (RFC 8291).
    private static func encrypted(_ text: String, for id: String) throws -> [UInt8] {
        let sandbox = try #require(SandboxScope.client).sandbox
        let subscription =
            try JSONSerialization.jsonObject(with: Data(sandbox.subscription(id).json.utf8)) as? [String: Any]
        let keys = try #require(subscription?["keys"] as? [String: String])
        func decoded(_ name: String) throws -> Data {
            let text = try #require(keys[name]).replacing("-", with: "+").replacing("_", with: "/")
            let padding = String(repeating: "=", count: (4 - text.count % 4) % 4)
            return try #require(Data(base64Encoded: text + padding))
        }
        let browser = try P256.KeyAgreement.PublicKey(x963Representation: decoded("p256dh"))
        let key = P256.KeyAgreement.PrivateKey()
        let material = try key.sharedSecretFromKeyAgreement(with: browser).hkdfDerivedSymmetricKey(
            using: SHA256.self, salt: decoded("auth"),
            sharedInfo: Data("WebPush: info\0".utf8) + browser.x963Representation + key.publicKey.x963Representation,
            outputByteCount: 32)
        let salt = Data(repeating: 7, count: 16)
        func derived(_ info: String, _ count: Int) -> SymmetricKey {
            HKDF<SHA256>.deriveKey(
                inputKeyMaterial: material, salt: salt, info: Data("Content-Encoding: \(info)\0".utf8),
                outputByteCount: count)
        }
        let nonce = try derived("nonce", 12).withUnsafeBytes { try AES.GCM.Nonce(data: $0) }
        let sealed = try AES.GCM.seal(Data(text.utf8) + [2], using: derived("aes128gcm", 16), nonce: nonce)
        let head = salt + [0, 0, 0x10, 0, 65] + key.publicKey.x963Representation
        return Array(head + sealed.ciphertext + sealed.tag)
    }

    @Test(
        "lists any message as JSON",
        arguments: [("hello \"you\"\n", "hello \"you\"\n"), ("{", "{"), ("", ""), (#""quoted""#, "quoted")])
    func texts(text: String, shown: String) async throws {
        let client = try #require(SandboxScope.client)
        let id = "plain-" + UUID().uuidString.lowercased()
        let body = try Self.encrypted(text, for: id)
        #expect(try await Self.send(id, Change("", 201) { $0.body = body }).status == 201)
        let list = try #require(try await client.control("/received").value() as? [[String: Any]])
        #expect(list.first { $0["token"] as? String == id }?["payload"] as? String == shown)
    }

    @Test("accepts a valid push with a location and lists an undecryptable body as null")
    func accepts() async throws {
        let client = try #require(SandboxScope.client)
        let id = "a-\(UInt32.random(in: .min ... .max))"
        let reply = try await Self.send(
            id, Change("", 201) { $0.headers = ["urgency": "high", "topic": "abc_-", "ttl": "0"] })
        #expect(reply.status == 201)
        #expect(reply.headers["location"]?.hasPrefix("\(client.sandbox.url)/message/") == true)
        #expect(reply.headers["ttl"] == "0")
        let received = client.sandbox.received().filter { $0.token == id }
        #expect(received.map(\.provider) == [.webpush])
        #expect(received.first.map { String(decoding: $0.payload, as: UTF8.self) } == "null")
        #expect(received.first?.body == Self.body())
    }

    @Test(
        "rejects an invalid push",
        arguments: [
            Change("not POST", 405) { $0.method = "PUT" },
            Change("no TTL", 400) { $0.headers = ["ttl": ""] },
            Change("TTL in words", 400) { $0.headers = ["ttl": "1h"] },
            Change("TTL of years", 400) { $0.headers = ["ttl": "99999999"] },
            Change("unknown urgency", 400) { $0.headers = ["urgency": "now"] },
            Change("long topic", 400) { $0.headers = ["topic": String(repeating: "a", count: 33)] },
            Change("topic of other letters", 400) { $0.headers = ["topic": "a b"] },
            Change("no content encoding", 400) { $0.headers = ["content-encoding": ""] },
            Change("another content encoding", 400) { $0.headers = ["content-encoding": "aesgcm"] },
            Change("plain text", 400) { $0.body = Array("hello".utf8) },
            Change("two records", 400) { $0.body = Self.body(4_097 - 86 - 1).enumerated().map { $0 == 18 ? 0 : $1 } },
            Change("too large", 413) { $0.body = Self.body(4_097 - 86) },
            Change("no authorization", 401) { $0.headers = ["authorization": ""] },
            Change("another scheme", 401) { $0.scheme = "bearer" },
            Change("another audience", 401) { $0.audience = "https://push.example" },
            Change("expired", 401) { $0.lifetime = -1 },
            Change("good for two days", 401) { $0.lifetime = 172_800 },
            Change("no subject", 401) { $0.subject = nil },
            Change("subject without a scheme", 401) { $0.subject = "push@example.com" },
            Change("signed by another", 401) { $0.hasOtherSignature = true },
            Change("another key than the subscription's", 403) { $0.hasOtherKey = true },
        ]
    )
    func refuses(change: Change) async throws {
        #expect(try await Self.send("refused", change).status == change.status)
    }

    @Test(
        "lets the name of a subscription choose a fault",
        arguments: [
            ("gone-1", 410, nil), ("missing-1", 404, nil), ("forbidden-1", 403, nil), ("toolarge-1", 413, nil),
            ("limited-1", 429, "7"), ("unavailable-1", 503, "7"), ("internal-1", 500, nil), ("moved-1", 307, nil),
            ("crowded-1", 429, nil), ("conflict-1", 409, nil), ("badgateway-1", 502, nil),
        ] as [(String, Int, String?)]
    )
    func faults(id: String, status: Int, delay: String?) async throws {
        let reply = try await Self.send(id, Change("", status))
        #expect(reply.status == status)
        #expect(reply.headers["retry-after"] == delay)
    }

    @Test("sends a delay as a date and limits a fault to the first attempt")
    func once() async throws {
        let id = "limiteddate-once-\(UInt32.random(in: .min ... .max))"
        let reply = try await Self.send(id, Change("", 429))
        #expect(reply.status == 429)
        #expect(reply.headers["retry-after"]?.hasSuffix(" GMT") == true)
        #expect(try await Self.send(id, Change("", 201)).status == 201)
    }

    @Test("derives a subscription from a name and a key")
    func subscriptions() async throws {
        let client = try #require(SandboxScope.client)
        let key = Base64.url.encode(P256.Signing.PrivateKey().publicKey.x963Representation)
        let one = try await client.control("/subscriptions?id=ada&key=\(key)")
        #expect(one.status == 200)
        let endpoint = one.value("endpoint") as? String ?? ""
        #expect(endpoint.hasPrefix("\(client.sandbox.url)/push/ada/"))
        #expect(endpoint != client.sandbox.subscription("ada").endpoint)
        let keys = client.sandbox.subscription("ada").keys
        #expect(one.value("keys", "auth") as? String == Base64.url.encode(keys.secret))
        #expect(
            one.value("keys", "p256dh") as? String == Base64.url.encode(keys.privateKey.publicKey.x963Representation))
        for query in ["", "?id=ada", "?id=a%2Fb&key=\(key)", "?id=ada&key=abc"] {
            #expect(try await client.control("/subscriptions\(query)").status == 400)
        }
    }
}
