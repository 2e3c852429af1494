// Carillon · SocketTickets.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Crypto
import Storage

/// One-time tickets for sockets of browsers, where a page can set only the URL.
///
/// A ticket is 256 random bits, valid for 30 s and one socket; Redis stores only its hash. It
/// carries the user and the expiry of the token that requested it, but no scopes.
package struct SocketTickets: Sendable {
    private static let lifetimeSeconds: Int64 = 30
    private static let length = 32

    private let live: Live
    private let revocations: RevocationRegister?
    private let now: @Sendable () -> Timestamp

    /// - Parameter revocations: nil to skip the check for revocation when a ticket is redeemed.
    package init(
        _ live: Live,
        revocations: RevocationRegister?,
        now: @escaping @Sendable () -> Timestamp
    ) {
        self.live = live
        self.revocations = revocations
        self.now = now
    }

    /// Issues a ticket for a caller.
    func issue(for caller: Caller) async throws(RedisError) -> (ticket: String, expiresAt: Timestamp) {
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
        try await self.live.connection.send(
            "SET", .text(self.key(secret)), .bytes(writer.bytes), "EX", .integer(Self.lifetimeSeconds))
        return (Base64.url.encode(secret), caller.expiresAt.map { min($0, end) } ?? end)
    }

    /// Consumes a ticket and returns its caller.
    func redeem(_ ticket: String) async throws(TokenFault) -> Caller {
        do throws(TokenFault) {
            guard ticket.utf8.count <= 64, let secret = Base64.url.decode(ticket.utf8), secret.count == Self.length
            else {
                throw TokenFault("the ticket is invalid, used or expired")
            }
            let caller = try Self.caller(try await self.consume(secret))
            if let end = caller.expiresAt, end <= self.now() { throw TokenFault("the token has expired") }
            try await self.revocations?.check(caller)
            return caller
        } catch {
            IdentityMetrics.count(error)
            throw error
        }
    }

    private func key(_ secret: [UInt8]) -> String {
        self.live.keys.socketTicket(SHA256.hash(data: secret).hex)
    }

    private func consume(_ secret: [UInt8]) async throws(TokenFault) -> [UInt8]? {
        do throws(RedisError) {
            let reply = try await self.live.connection.send("GETDEL", .text(self.key(secret)))
            return try reply.string().map { Array($0.utf8) }
        } catch {
            throw TokenFault(.unavailable, "tickets cannot be checked now")
        }
    }

    private static func caller(_ stored: [UInt8]?) throws(TokenFault) -> Caller {
        guard let stored, let value = try? JSONParser.parse(stored), let user = value["user"]?.string else {
            throw TokenFault("the ticket is invalid, used or expired")
        }
        func moment(_ name: String) -> Timestamp? { value[name]?.integer.map { Timestamp(microseconds: $0) } }
        return Caller(user: user, scopes: [], issuedAt: moment("issued_at"), expiresAt: moment("expires_at"))
    }
}
