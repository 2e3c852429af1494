// Carillon · SocketTickets.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Crypto
import Storage

/// One-use tickets for browsers' sockets, whose URL is all that a page can set.
///
/// A ticket is 256 random bits, good for 30 s and for one socket; Redis knows only its hash. It speaks for its user as the
/// token did that it was made with, and ends with it, but opens no call of services.
package struct SocketTickets: Sendable {
    private static let lifetimeSeconds: Int64 = 30
    private static let length = 32

    private let redis: RedisConnection
    private let keys: Keyspace
    private let revocations: RevocationRegister?
    private let now: @Sendable () -> Timestamp

    /// - Parameter revocations: nil to accept whatever was good when the ticket was made.
    package init(
        redis: RedisConnection,
        keys: Keyspace,
        revocations: RevocationRegister?,
        now: @escaping @Sendable () -> Timestamp
    ) {
        self.redis = redis
        self.keys = keys
        self.revocations = revocations
        self.now = now
    }

    /// Makes one for a caller.
    package func issue(for caller: Caller) async throws(RedisError) -> (ticket: String, expiresAt: Timestamp) {
        var generator = SystemRandomNumberGenerator()
        let secret = (0..<Self.length).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("user", caller.user)
        let moments: [(StaticString, Timestamp?)] = [("issued_at", caller.issuedAt), ("expires_at", caller.expiresAt)]
        for case (let name, .some(let moment)) in moments {
            writer.key(name)
            writer.integer(moment.microseconds)
        }
        writer.endObject()
        let end = self.now() + .seconds(Self.lifetimeSeconds)
        try await self.redis.send(
            "SET", .text(self.key(secret)), .bytes(writer.bytes), "EX", .integer(Self.lifetimeSeconds))
        return (Base64URL.encode(secret), caller.expiresAt.map { min($0, end) } ?? end)
    }

    /// Who a ticket speaks for; it is used up, whatever comes of it.
    package func redeem(_ ticket: String) async throws(TokenFault) -> Caller {
        do throws(TokenFault) {
            guard ticket.utf8.count <= 64, let secret = Base64URL.decode(ticket.utf8), secret.count == Self.length
            else {
                throw TokenFault("the ticket is not good, or no longer")
            }
            let caller = try Self.caller(try await self.take(secret))
            if let end = caller.expiresAt, end <= self.now() { throw TokenFault("the token has expired") }
            try await self.revocations?.check(caller)
            return caller
        } catch {
            IdentityMetrics.count(error)
            throw error
        }
    }

    private func key(_ secret: [UInt8]) -> String {
        self.keys.socketTicket(
            SHA256.hash(data: secret).map { byte in
                (byte < 16 ? "0" : "") + String(byte, radix: 16)
            }.joined())
    }

    private func take(_ secret: [UInt8]) async throws(TokenFault) -> [UInt8]? {
        do throws(RedisError) {
            let reply = try await self.redis.send("GETDEL", .text(self.key(secret)))
            return try reply.string().map { Array($0.utf8) }
        } catch {
            throw TokenFault(.unavailable, "tickets cannot be checked now")
        }
    }

    private static func caller(_ stored: [UInt8]?) throws(TokenFault) -> Caller {
        guard let stored, let value = try? JSONParser.parse(stored), let user = value["user"]?.string else {
            throw TokenFault("the ticket is not good, or no longer")
        }
        func moment(_ name: String) -> Timestamp? { value[name]?.integer.map { Timestamp(microseconds: $0) } }
        return Caller(user: user, scopes: [], issuedAt: moment("issued_at"), expiresAt: moment("expires_at"))
    }
}
