// Carillon · CredentialResolverTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import NIOHTTP1
import Storage
import Support
import Testing

@testable import HTTP
@testable import Sockets

@Suite("Credentials", .timeLimit(.minutes(10)))
struct CredentialResolverTests {
    /// A request and its expected result.
    struct Case: Sendable, CustomTestStringConvertible {
        static let everything: CredentialKinds = [.bearer, .token, .inline, .ticket, .cookie]

        let name: String
        var kinds = Case.everything
        /// The user of the request; nil if there is none.
        var user: String?
        var code: TokenFault.Code?
        let make: @Sendable (inout PresentedCredentials) -> Void

        var testDescription: String { self.name }
    }

    private static let ada = Tokens.secret(#"{"sub":"ada","iat":1795000000}"#)
    private static let eve = Tokens.secret(#"{"sub":"eve","iat":1795000000}"#)

    private static let headers = [
        Case(name: "nothing") { _ in },
        Case(name: "bearer", user: "ada") { $0.authorization = ["Bearer \(ada)"] },
        Case(name: "scheme in any case, more spaces", user: "ada") { $0.authorization = ["bEARER  \(ada)"] },
        Case(name: "token", user: "ada") { $0.authorization = ["Token \(ada)"] },
        Case(name: "token on a canonical path", kinds: .canonical, code: .refused) {
            $0.authorization = ["Token \(ada)"]
        },
        Case(name: "another scheme", code: .refused) { $0.authorization = ["Basic YTpi"] },
        Case(name: "two headers", code: .refused) { $0.authorization = ["Bearer \(ada)", "Bearer \(eve)"] },
        Case(name: "a bad header is not made good by the rest", code: .refused) {
            $0.authorization = ["Bearer x"]
            $0.token = ada
        },
        Case(name: "the header before the dialect's place", user: "ada") {
            $0.authorization = ["Bearer \(ada)"]
            $0.token = eve
        },
        Case(name: "the dialect's place", user: "eve") { $0.token = eve },
        Case(name: "the dialect's place on a REST path", kinds: .compatible) { $0.token = eve },
        Case(name: "a ticket that was never given", code: .refused) { $0.ticket = "nonsense" },
        Case(name: "a ticket on a REST path", kinds: .compatible) { $0.ticket = "nonsense" },
    ]

    private static func cookie(
        _ name: String,
        _ user: String?,
        _ code: TokenFault.Code? = nil,
        kinds: CredentialKinds = .compatible,
        origin: String? = nil,
        site: String? = nil,
        isUnsafe: Bool = true,
        cookies: [String] = ["a=b; session=\(ada); c=d"]
    ) -> Case {
        Case(name: "cookie: " + name, kinds: kinds, user: user, code: code) { presented in
            presented.cookies = cookies
            presented.origin = origin
            presented.fetchSite = site
            presented.isUnsafe = isUnsafe
        }
    }

    private static let cookies = [
        cookie("allowed origin", "ada", origin: "https://app.example"),
        cookie("allowed origin in capitals", "ada", origin: "HTTPS://App.Example"),
        cookie("another origin", nil, .forbidden, origin: "https://evil.example"),
        cookie("another origin, reading", nil, .forbidden, origin: "https://evil.example", isUnsafe: false),
        cookie("an origin that begins like it", nil, .forbidden, origin: "https://app.example.evil.example"),
        cookie("no origin at all", nil, .forbidden, origin: "null"),
        cookie("a header that names none", nil, .forbidden),
        cookie("a header that names none, reading", "ada", isUnsafe: false),
        cookie("same origin by fetch metadata", "ada", site: "same-origin"),
        cookie("same site", nil, .forbidden, site: "same-site"),
        cookie("another site", nil, .forbidden, site: "cross-site"),
        cookie("another site, reading", nil, .forbidden, site: "cross-site", isUnsafe: false),
        cookie("typed address", "ada", site: "none", isUnsafe: false),
        cookie("another origin that says same", nil, .forbidden, origin: "https://evil.example", site: "same-origin"),
        cookie("canonical path", nil, kinds: .canonical, origin: "https://app.example"),
        cookie("native socket", nil, kinds: .socket, origin: "https://app.example"),
        cookie("quoted", "ada", origin: "https://app.example", cookies: ["session=\"\(ada)\""]),
        cookie("in the second field", "ada", origin: "https://app.example", cookies: ["a=b", "session=\(ada)"]),
        cookie(
            "two of them", nil, .refused, origin: "https://app.example", cookies: ["session=\(ada); session=\(eve)"]),
        cookie("another name", nil, origin: "https://app.example", cookies: ["Session=\(ada); xsession=\(ada)"]),
        cookie("not a token", nil, .refused, origin: "https://app.example", cookies: ["session=abc"]),
        cookie("nonsense", nil, origin: "https://app.example", cookies: [";;=;session; ="]),
    ]

    private static func resolver(_ redis: RedisClient, _ prefix: String) throws -> CredentialResolver {
        let keys = Keyspace(prefix: prefix)
        return CredentialResolver(
            verifier: try Tokens.verifier(),
            tickets: SocketTickets(Live(redis, keys: keys), revocations: nil, now: { Tokens.now }),
            cookie: CookieRules(name: "session", allowedOrigins: ["https://app.example"])
        )
    }

    @Test("resolves the sender of a request", arguments: headers + cookies)
    func caller(sample: Case) async throws {
        try await TestRedis.with { redis, prefix in
            let resolver = try Self.resolver(redis, prefix)
            var presented = PresentedCredentials()
            sample.make(&presented)
            var code: TokenFault.Code?
            var caller: Caller?
            do throws(TokenFault) {
                caller = try await resolver.caller(presented, accepting: sample.kinds)
            } catch {
                code = error.code
            }
            #expect(caller?.user == sample.user)
            #expect(code == sample.code)
            #expect(!"\(presented)\(String(reflecting: presented))".contains(Self.ada))
        }
    }

    @Test("reads a socket's credential from the header and the dialect's place, never from a cookie")
    func socket() async throws {
        try await TestRedis.with { redis, prefix in
            let resolver = try Self.resolver(redis, prefix)
            func user(_ fields: [(String, String)], token: String? = nil) async -> String? {
                var presented = PresentedCredentials(ofSocket: HTTPHeaders(fields))
                presented.token = token
                return try? await resolver.caller(presented, accepting: .socket)?.user
            }
            let cookie = ("Cookie", "session=\(Self.ada)")
            #expect(await user([("Authorization", "Bearer \(Self.ada)")]) == "ada")
            #expect(await user([("Authorization", "Token \(Self.ada)")]) == nil)
            #expect(await user([("X", "y")], token: Self.eve) == "eve")
            #expect(await user([cookie], token: Self.eve) == "eve")
            #expect(await user([cookie, ("Origin", "https://app.example")]) == nil)
            #expect(await user([cookie, ("Sec-Fetch-Site", "same-origin")]) == nil)
            #expect(await user([cookie]) == nil)
        }
    }

    @Test("accepts a ticket once, for its user, without scopes")
    func ticket() async throws {
        try await TestRedis.with { redis, prefix in
            let live = Live(redis, keys: Keyspace(prefix: prefix))
            let tickets = SocketTickets(live, revocations: nil, now: { Tokens.now })
            let issuedAt = Timestamp(microseconds: 1_794_999_000_123_456)
            let end = Tokens.now + .seconds(600)
            let caller = Caller(user: "ada \"é", scopes: [.admin], issuedAt: issuedAt, expiresAt: end)
            let (ticket, expiresAt) = try await tickets.issue(for: caller)
            #expect(expiresAt == Tokens.now + .seconds(30))
            #expect(ticket.utf8.count == 43)
            let (other, _) = try await tickets.issue(for: caller)
            #expect(other != ticket)
            // Redis sees only a digest of the ticket and expires it.
            let names = try await redis.send("KEYS", .text(prefix + "*")).strings()
            #expect(names.count == 2)
            for name in names {
                #expect(!name.contains(ticket))
                let life = try await redis.send("TTL", .text(name)).integer()
                #expect((1...30).contains(life))
            }
            let found = try await tickets.redeem(ticket)
            #expect(found == Caller(user: "ada \"é", scopes: [], issuedAt: issuedAt, expiresAt: end))
            for bad in [ticket, "", String(other.dropLast()), other + "A", String(repeating: "x", count: 100_000)] {
                let error = await #expect(throws: TokenFault.self) { try await tickets.redeem(bad) }
                #expect(error?.code == .refused)
            }
            let won = await withTaskGroup(of: Bool.self) { group in
                for _ in 0..<20 { group.addTask { (try? await tickets.redeem(other)) != nil } }
                return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
            }
            #expect(won == 1)
        }
    }

    @Test("rejects a ticket once its token has expired")
    func ticketEnd() async throws {
        try await TestRedis.with { redis, prefix in
            let live = Live(redis, keys: Keyspace(prefix: prefix))
            let tickets = SocketTickets(live, revocations: nil, now: { Tokens.now })
            let end = Tokens.now + .seconds(10)
            let caller = Caller(user: "ada", scopes: [], expiresAt: end)
            let (ticket, expiresAt) = try await tickets.issue(for: caller)
            #expect(expiresAt == end)
            let later = SocketTickets(live, revocations: nil, now: { end })
            await #expect(throws: TokenFault.self) { try await later.redeem(ticket) }
        }
    }
}
