// Carillon · IdentityTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Crypto
import Foundation
import Support
import Testing

@testable import HTTP

/// Authentication: key sets, tickets, limited service tokens and revocation.
@Suite(.timeLimit(.minutes(10)))
struct IdentityTests {
    private static func encode(_ bytes: some DataProtocol) -> String {
        Data(bytes).base64EncodedString().replacingOccurrences(of: "+", with: "-")
            .replacingOccurrences(of: "/", with: "_").replacingOccurrences(of: "=", with: "")
    }

    private static func document(_ key: P256.Signing.PrivateKey, kid: String) -> String {
        let point = key.publicKey.rawRepresentation
        return #"{"keys":[{"kty":"EC","crv":"P-256","use":"sig","kid":"\#(kid)","#
            + #""x":"\#(self.encode(point.prefix(32)))","y":"\#(self.encode(point.suffix(32)))"}]}"#
    }

    private static func token(_ claims: String, kid: String, key: P256.Signing.PrivateKey) throws -> String {
        let header = self.encode(Data(#"{"alg":"ES256","kid":"\#(kid)"}"#.utf8))
        let signed = header + "." + self.encode(Data(claims.utf8))
        return signed + "." + self.encode(try key.signature(for: Data(signed.utf8)).rawRepresentation)
    }

    private static func service(
        types: [String]? = nil,
        audiences: [JobAllowance.Audience]? = nil,
        scope: Caller.Scope = .service
    ) -> String {
        TokenIssuer.issue(
            user: "backend",
            scope: scope,
            lifetime: .seconds(600),
            secret: Stack.secret,
            issuer: nil,
            audience: nil,
            types: types,
            audiences: audiences,
            now: Schedules.now()
        )
    }

    @Test("a gateway starts without its key set, answers 503 until it can read it, and never logs a token")
    func keySet() async throws {
        try await Stack.with { stack in
            let port = try FreePort.next()
            let process = try await stack.spawn(
                "gateway",
                ["serve"],
                name: "gateway",
                environment: [
                    "AUTH_JWKS": "http://127.0.0.1:\(port)/keys", "AUTH_JWT_SECRET": "", "LOG_LEVEL": "trace",
                ]
            )
            let line = try await process.waitForLine("ready ")
            let listening = try #require(line.split(separator: ":").last.flatMap { Int($0) })
            let gateway = Gateway(process: process, port: listening, http: stack.http)
            let key = P256.Signing.PrivateKey()
            let token = try Self.token(#"{"sub":"ada","exp":4000000000}"#, kid: "one", key: key)
            let down = try await gateway.call(.get, "/v1/notifications", token: token)
            #expect(down.status == 503)
            let unready = try await gateway.call(.get, "/readyz", token: nil)
            #expect(unready.status == 503 && unready.body["key_set"]?.string == "not read yet")
            let mixed = try await stack.startGateway(
                name: "mixed", environment: ["AUTH_JWKS": "http://127.0.0.1:\(port)/keys"])
            #expect(try await mixed.call(.get, "/readyz", token: nil).status == 200, "it has a secret, too")
            #expect(down.body["detail"]?.string?.contains("cannot be read now") == true)
            let socket = try await TestSocket.open(port: listening, token: token)
            try await eventually("the socket is refused") { socket.status == 503 }
            let later = try await TestSocket.open(port: listening, token: nil)
            try await eventually("the socket is open") { later.status == 101 }
            try await later.send(json: #"{"type":"auth","token":"\#(token)"}"#)
            try await eventually("it is told to retry") { later.closeCode == 1013 }
            // A Socket.IO client stays away after a refusal but reconnects after a mere disconnect.
            let joining = try await TestSocket.open(
                port: listening, token: nil, query: "?EIO=4&transport=websocket", path: "/socket.io/")
            try await eventually("the Socket.IO client is up") { joining.status == 101 }
            try await joining.send(opcode: 1, payload: Array(#"40{"token":"\#(token)"}"#.utf8))
            try await eventually("its connection ends") { joining.closeCode == 1013 }
            #expect(!joining.texts.contains { $0.hasPrefix("44") }, "\(joining.texts)")
            let polling = try await TestEngine.open(port: listening, http: stack.http)
            #expect(try await polling.post(#"40{"token":"\#(token)"}"#).status == 200)
            let ended = try await polling.poll()
            #expect(ended.status == 400 && ended.body == #"{"code":1,"message":"Session ID unknown"}"#, "\(ended.body)")
            // Tokens signed with a secret stay refused while no secret is configured.
            let other = try await gateway.call(.get, "/v1/notifications", token: Stack.token(user: "ada"))
            #expect(other.status == 401)
            try await HTTPStub.with(.init(body: Self.document(key, kid: "one")), port: port) { _ in
                try await eventually("the token is taken") {
                    try await gateway.call(.get, "/v1/notifications", token: token).status == 200
                }
            }
            let forged = try Self.token(#"{"sub":"ada","exp":4000000000}"#, kid: "one", key: P256.Signing.PrivateKey())
            #expect(try await gateway.call(.get, "/v1/notifications", token: forged).status == 401)
            // The key server is down again; the keys that were read stay valid.
            let ready = try await gateway.call(.get, "/readyz", token: nil)
            #expect(ready.status == 200 && ready.body["key_set"] == nil)
            #expect(try await gateway.call(.get, "/v1/notifications", token: token).status == 200)
            let metrics = try await gateway.text("/metrics")
            #expect(metrics.contains("carillon_keyset_readings 1"))
            #expect(metrics.contains("carillon_tokens_unchecked"))
            for part in token.split(separator: ".") { #expect(!metrics.contains(part)) }
            process.send(SIGTERM)
            #expect(try await process.waitForExit() == .code(0))
            let written = process.errors()
            #expect(written.contains("cannot read key set; keys read before stay valid"))
            #expect(written.contains("AUTH_JWKS without AUTH_AUDIENCE"))
            for secret in [token, forged] {
                for part in secret.split(separator: ".") { #expect(!written.contains(part)) }
            }
        }
    }

    @Test("a key set file without usable keys and a missing authority file are configuration faults")
    func configuration() async throws {
        try await Stack.with { stack in
            let path = stack.directory.file("keys.json")
            try #"{"keys":[{"kty":"oct","k":"aHVudGVyMg","kid":"hunter2"}]}"#.write(
                toFile: path, atomically: false, encoding: .utf8)
            let process = try await stack.spawn(
                "gateway", ["serve"], name: "gateway",
                environment: ["AUTH_JWKS": path, "AUTH_JWKS_CA": "/nowhere/ca.pem"])
            #expect(try await process.waitForExit() == .code(78))
            let errors = process.errors()
            #expect(errors.contains("AUTH_JWKS cannot be used: the document has no usable key; key 0 is neither"))
            #expect(errors.contains("AUTH_JWKS_CA cannot be read"))
            #expect(!errors.contains("hunter2") && !errors.contains("aHVudGVyMg"))
        }
    }

    @Test("a ticket opens one socket for its user")
    func ticket() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Stack.token(user: "ada")
            let answer = try await gateway.call(.post, "/v1/socket-tickets", token: token)
            #expect(answer.status == 200)
            let ticket = try #require(answer.body["ticket"]?.string)
            #expect(answer.body["expires_at"]?.string.flatMap { Timestamp(rfc3339: $0) } != nil)
            #expect(answer.body["user"]?.string == "ada")
            let socket = try await TestSocket.open(port: gateway.port, token: nil, query: "?ticket=\(ticket)")
            _ = try await socket.first("sync")
            let again = try await TestSocket.open(port: gateway.port, token: nil, query: "?ticket=\(ticket)")
            try await eventually("the second is refused") { again.status == 401 }
            #expect(try await gateway.call(.post, "/v1/socket-tickets", token: nil).status == 401)
            let field = try await gateway.call(.post, "/v1/socket-tickets", token: token, json: #"{"ttl":1}"#)
            #expect(field.status == 422)
            #expect(!gateway.process.errors().contains(ticket))
        }
    }

    @Test("a limited service token sends only allowed jobs; 403 names the field")
    func limits() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = Self.service(types: ["payment_*"], audiences: [.user])
            let good = #"{"user":"ada","type":"payment_received","title":"t"}"#
            #expect(try await gateway.call(.post, "/v1/jobs", token: token, json: good).status == 202)
            for (body, fields) in [
                (#"{"user":"ada","type":"invoice_created","title":"t"}"#, ["type"]),
                (#"{"all":true,"type":"payment_received","title":"t"}"#, ["all"]),
                (#"{"users":["ada"],"type":"invoice_created","title":"t"}"#, ["type", "users"]),
                (#"{"user":"ada","event":"e","args":[]}"#, ["event"]),
                (#"{"user":"ada","type":5,"title":"t"}"#, ["type"]),
                (#"[\#(good),{"topic":"t","type":"payment_received","title":"t"}]"#, ["[1].topic"]),
            ] {
                let answer = try await gateway.call(.post, "/v1/jobs", token: token, json: body)
                #expect(answer.status == 403)
                #expect(answer.body["errors"]?.array?.compactMap { $0["field"]?.string } == fields)
            }
            // All or nothing.
            let length = try await stack.connection.send("XLEN", "carillon:jobs:critical").integer()
            #expect(length == 1)
            let revoke = try await gateway.call(.post, "/v1/users/ada/revoke-tokens", token: token)
            #expect(revoke.status == 403)
            // Limited tokens cannot make an operator's calls either.
            for path in ["presence/ada", "statistics", "failures"] {
                for limited in [
                    Self.service(types: ["payment_*"], scope: .admin), Self.service(audiences: [.user], scope: .admin),
                ] {
                    let answer = try await gateway.call(.get, "/v1/admin/\(path)", token: limited)
                    #expect(answer.status == 403)
                    #expect(answer.body["detail"]?.string == "the token is limited to sending jobs")
                }
                let whole = Self.service(scope: .admin)
                #expect(try await gateway.call(.get, "/v1/admin/\(path)", token: whole).status == 200)
            }
        }
    }

    @Test("revoking tokens refuses them on every gateway and closes their sockets")
    func revocation() async throws {
        try await Stack.with { stack in
            let first = try await stack.startGateway(name: "first")
            let second = try await stack.startGateway(name: "second")
            let user = "ada/ü"
            let path = "/v1/users/ada%2F%C3%BC/revoke-tokens"
            let token = Stack.token(user: user)
            let ticket = try await first.call(.post, "/v1/socket-tickets", token: token).body["ticket"]?.string ?? ""
            var sockets: [TestSocket] = []
            for gateway in [first, second] { sockets.append(try await .synced(port: gateway.port, user: user)) }
            let other = try await TestSocket.synced(port: second.port, user: "eve")
            #expect(try await first.call(.post, path, token: token).status == 403)
            let answer = try await first.call(.post, path, token: Self.service())
            #expect(answer.status == 200)
            #expect(answer.body["user"]?.string == user)
            for socket in sockets {
                try await eventually("the socket is closed") { socket.closeCode == 4401 }
            }
            for gateway in [first, second] {
                let refused = try await gateway.call(.get, "/v1/notifications", token: token)
                #expect(refused.status == 401)
                #expect(refused.body["detail"]?.string == "the token was revoked")
            }
            let late = try await TestSocket.open(port: second.port, token: nil, query: "?ticket=\(ticket)")
            try await eventually("a ticket of the token is refused") { late.status == 401 }
            // Token times have whole seconds, so a token issued in the second of the revocation is
            // refused too.
            try await eventually("a fresh token is good") {
                let fresh = Stack.token(user: user)
                return try await second.call(.get, "/v1/notifications", token: fresh).status == 200
            }
            #expect(other.closeCode == nil)
        }
    }

    @Test("a gateway that misses a revocation's announcement finds it in the database")
    func missedAnnouncement() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let socket = try await TestSocket.synced(port: gateway.port, user: "ada")
            _ = try await stack.query(
                """
                WITH next AS (UPDATE carillon.token_revocation_version SET version = version + 1 RETURNING version)
                INSERT INTO carillon.token_revocations SELECT 'ada', now() + interval '1 minute', version FROM next
                """
            )
            try await eventually("the socket is closed") { socket.closeCode == 4401 }
            let token = Stack.token(user: "ada")
            #expect(try await gateway.call(.get, "/v1/notifications", token: token).status == 401)
        }
    }
}

extension Gateway {
    /// The body of an answer as text.
    fileprivate func text(_ path: String) async throws -> String {
        let request = TransferRequest(
            .get, url: "http://127.0.0.1:\(self.port)\(path)", timeout: longestWait,
            maximumResponseBytes: 1_048_576)
        return String(decoding: try await self.http.answer(request, to: path).body, as: UTF8.self)
    }
}
