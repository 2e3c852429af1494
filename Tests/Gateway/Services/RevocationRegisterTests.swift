// Carillon · RevocationRegisterTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTPTypes
import Hummingbird
import NIOCore
import NIOEmbedded
import Support
import Testing

@testable import HTTP
@testable import Sockets
@testable import Storage

@Suite("Revoked tokens", .timeLimit(.minutes(10)))
struct RevocationRegisterTests {
    /// Runs `body` with a store and a way to make gateways' registers over it.
    private func with(
        _ body: (RevocationStore, TestDatabase, @Sendable (Int) -> RevocationRegister) async throws -> Void
    ) async throws {
        try await TestDatabase.with { database in
            try await TestRedis.with { redis, prefix in
                let store = Database(database.pool).revocations
                try await body(store, database) { bound in
                    RevocationRegister(
                        store: store,
                        live: Live(redis, keys: Keyspace(prefix: prefix)),
                        bound: bound,
                        logger: TestLog.logger
                    )
                }
            }
        }
    }

    private static func caller(_ user: String, issued: Timestamp?) -> Caller {
        Caller(user: user, scopes: [], issuedAt: issued, expiresAt: nil)
    }

    /// The register's verdict on a token; nil if it is valid.
    private static func verdict(_ register: RevocationRegister, _ user: String, _ issued: Timestamp?) async
        -> TokenFault.Code?
    {
        do throws(TokenFault) {
            try await register.check(self.caller(user, issued: issued))
            return nil
        } catch {
            return error.code
        }
    }

    @Test(
        "refuses earlier tokens at once on the revoking gateway, and on others after they read it", arguments: [100, 1])
    func revoke(bound: Int) async throws {
        try await self.with { store, database, make in
            let database = Database(database.pool)
            let (here, there) = (make(bound), make(bound))
            _ = try await store.revoke(user: "somebody", before: Tokens.now)
            for register in [here, there] { _ = try await register.load() }
            let start = try await database.clock()
            let before = try await here.revoke(user: "ada")
            let end = try await database.clock()
            #expect(start <= before && before <= end, "by PostgreSQL's clock")
            _ = try await there.load()
            for register in [here, there] {
                #expect(await Self.verdict(register, "ada", before - .seconds(1)) == .refused)
                #expect(await Self.verdict(register, "ada", nil) == .refused)
                #expect(await Self.verdict(register, "ada", end) == nil)
                #expect(await Self.verdict(register, "eve", nil) == nil)
                #expect(await Self.verdict(register, "somebody", nil) == .refused)
            }
        }
    }

    @Test("refuses a cached token after its revocation")
    func remembered() async throws {
        try await self.with { _, _, make in
            let register = make(100)
            _ = try await register.load()
            let verifier = TokenVerifier(
                secrets: [Tokens.secret], keySet: nil, rules: TokenRules(), revocations: register, now: { Tokens.now })
            let token = Tokens.secret(#"{"sub":"ada","iat":1.7e9,"exp":1795000600}"#)
            for _ in 0..<2 { _ = try await verifier.verify(token, remembers: true) }
            _ = try await register.revoke(user: "ada")
            let error = await #expect(throws: TokenFault.self) { try await verifier.verify(token, remembers: true) }
            #expect(error?.code == .refused)
        }
    }

    @Test("refuses a call whose token is revoked while its body arrives")
    func lateBody() async throws {
        try await self.with { _, _, make in
            try await TestRedis.with { redis, prefix in
                let register = make(100)
                let verifier = TokenVerifier(
                    secrets: [Tokens.secret], keySet: nil, rules: TokenRules(), revocations: register,
                    now: { Tokens.now })
                let live = Live(redis, keys: Keyspace(prefix: prefix))
                let tickets = SocketTickets(live, revocations: register, now: { Tokens.now })
                let middleware = IdentityMiddleware(
                    credentials: CredentialResolver(verifier: verifier, tickets: tickets, cookie: nil),
                    accepting: .canonical)
                let token = Tokens.secret(#"{"sub":"ada","iat":1.7e9,"exp":1795000600}"#)
                func call(revokes: Bool) async throws -> HTTPResponse.Status {
                    let head = HTTPRequest(
                        method: .post, scheme: "http", authority: "gateway", path: "/v1/devices",
                        headerFields: [.authorization: "Bearer \(token)"])
                    let request = Request(head: head, body: RequestBody(buffer: ByteBuffer(string: "{}")))
                    let channel = NIOAsyncTestingChannel()
                    let source = ApplicationRequestContextSource(channel: channel, logger: TestLog.logger)
                    let context = APIContext(source: source)
                    _ = try await channel.finish()
                    return try await middleware.handle(request, context: context) { request, _ in
                        if revokes { _ = try await register.revoke(user: "ada") }
                        let body = try await FieldReader.body(request)
                        return Response(status: body == .object([]) ? .ok : .badRequest)
                    }.status
                }
                let status = try await call(revokes: false)
                #expect(status == .ok)
                let error = await #expect(throws: Problem.self) { try await call(revokes: true) }
                #expect(error?.status == .unauthorized)
            }
        }
    }

    @Test("forgets only the revocations of erasures, 400 days later")
    func forget() async throws {
        try await self.with { store, database, make in
            let day: Int64 = 86_400
            let now = try await Database(database.pool).clock().seconds
            for (user, age) in [("gone", 401), ("recent", 399), ("here", 401)] as [(String, Int64)] {
                _ = try await store.revoke(user: user, before: Timestamp(seconds: now - age * day))
            }
            try await database.pool.query("INSERT INTO carillon.users (user_id) VALUES ('here')")
            try await make(100).forgetErased()
            let left = try await store.changes(since: 0, limit: 10).map(\.user)
            #expect(left == ["recent", "here"])
        }
    }

    @Test("looks each user up by index when it forgets")
    func forgetPlan() async throws {
        try await self.with { _, database, _ in
            let pool = database.pool
            try await pool.query(
                "INSERT INTO carillon.users (user_id) SELECT 'u' || n FROM generate_series(1, 20000) n")
            try await pool.query(
                """
                INSERT INTO carillon.token_revocations (user_id, revoked_before, version)
                SELECT 'u' || n, now(), n FROM generate_series(1, 1000) n
                """
            )
            try await pool.query("ANALYZE carillon.users, carillon.token_revocations")
            let settings = StoreSession.settings.map {
                PostgresStatement("SELECT set_config('\($0.name)', '\($0.value)', true)")
            }
            let explain = PostgresStatement(
                "EXPLAIN " + RevocationStore.forgetOld, [.int8(10)])
            let plan = try await pool.run(settings + [explain])
            let lines = try plan.last.map { try $0.map { try $0.text(0) } } ?? []
            let scan = try #require(lines.firstIndex { $0.contains("users_pkey") }, "\(lines)")
            #expect(lines.dropFirst(scan + 1).first?.contains("Index Cond") == true, "\(lines)")
            // The others are not read.
            #expect(lines.contains { $0.contains("token_revocations_revoked_before") }, "\(lines)")
        }
    }

    @Test("closes the sockets of revoked tokens although old revocations cannot be deleted")
    func failingCleanup() async throws {
        try await self.with { store, database, make in
            _ = try await store.revoke(user: "ada", before: Tokens.now)
            try await database.pool.query("ALTER TABLE carillon.users RENAME TO former_users")
            try await RunningHub.with(ScriptedBackend()) { running in
                let socket = try await running.open("ada").synced()
                let service = RevocationService(register: make(100), hub: running.hub, logger: TestLog.logger)
                try await withThrowingTaskGroup(of: Void.self) { group in
                    group.addTask { try await service.run() }
                    try await eventually("the socket is closed") {
                        try await socket.on { _, wire in wire.end != nil }
                    }
                    group.cancelAll()
                }
            }
        }
    }

    @Test("refuses tokens and closes sockets by an announcement, without PostgreSQL")
    func announcement() async throws {
        try await TestDatabase.with { database in
            try await TestRedis.with { redis, prefix in
                try await RunningHub.with(ScriptedBackend()) { running in
                    let keys = Keyspace(prefix: prefix)
                    let live = Live(redis, keys: keys)
                    let registers = (0..<2).map { _ in
                        RevocationRegister(
                            store: Database(database.pool).revocations, live: live, logger: TestLog.logger)
                    }
                    let (here, there) = (registers[0], registers[1])
                    // Nothing of it reads PostgreSQL.
                    let service = NodeService(
                        node: "n", lease: Lease(key: keys.nodeLease("n"), value: "gateway", connection: redis),
                        configuration: try await TestRedis.configuration(), live: live, hub: running.hub,
                        revocations: there, eventLoop: running.eventLoop, logger: TestLog.logger)
                    try await withThrowingTaskGroup(of: Void.self) { group in
                        group.addTask { try? await service.run() }
                        let socket = try await running.open("ada").synced()
                        try await eventually("the socket is closed") {
                            // Again, until the node is subscribed.
                            _ = try await here.revoke(user: "ada")
                            return try await socket.on { _, wire in wire.end != nil }
                        }
                        database.pool.close()
                        #expect(await Self.verdict(there, "ada", nil) == .refused)
                        group.cancelAll()
                    }
                }
            }
        }
    }

    @Test("reads announcements, and none of another format")
    func announcements() {
        let revocation = RevocationStore.Revocation(user: "ada b", before: Tokens.now, version: 7)
        #expect(RevocationStore.Revocation(announcement: Array(revocation.announcement.utf8)[...]) == revocation)
        #expect(RevocationStore.Revocation(announcement: Array("7".utf8)[...]) == nil)
    }

    @Test("looks users up until a gateway has read the revocations")
    func cold() async throws {
        try await self.with { store, _, make in
            _ = try await store.revoke(user: "ada", before: Tokens.now)
            let register = make(100)
            #expect(await Self.verdict(register, "ada", nil) == .refused)
            #expect(await Self.verdict(register, "eve", nil) == nil)
        }
    }

    @Test("needs a lookup only beyond a full copy or before it is read, and answers 503 if it fails")
    func outage() async throws {
        try await self.with { store, database, make in
            _ = try await store.revoke(user: "ada", before: Tokens.now)
            _ = try await store.revoke(user: "bob", before: Tokens.now)
            let (whole, full, unread) = (make(100), make(1), make(100))
            for register in [whole, full] { _ = try await register.load() }
            database.pool.close()
            #expect(await Self.verdict(whole, "ada", nil) == .refused)
            #expect(await Self.verdict(whole, "eve", nil) == nil)
            #expect(await Self.verdict(full, "ada", nil) == .refused)
            #expect(await Self.verdict(full, "bob", nil) == .unavailable)
            #expect(await Self.verdict(full, "eve", nil) == .unavailable)
            #expect(await Self.verdict(unread, "eve", nil) == .unavailable)
        }
    }

    @Test("moves revocations only forward and numbers changes in commit order")
    func store() async throws {
        try await self.with { store, _, _ in
            let late = Timestamp(seconds: 2_000)
            #expect(try await store.revoke(user: "ada", before: late).before == late)
            #expect(try await store.revoke(user: "ada", before: Timestamp(seconds: 1_000)).before == late)
            #expect(try await store.moment(of: "ada") == late)
            #expect(try await store.moment(of: "eve") == nil)
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<40 {
                    group.addTask { _ = try await store.revoke(user: "user\(number % 20)", before: late) }
                }
                try await group.waitForAll()
            }
            var seen: [RevocationStore.Revocation] = []
            while true {
                let page = try await store.changes(since: seen.last?.version ?? 0, limit: 7)
                seen += page
                if page.count < 7 { break }
            }
            #expect(seen.count == 21)
            #expect(seen.map(\.version) == seen.map(\.version).sorted())
            #expect(seen.last?.version == 42)
            #expect(try await store.changes(since: 42, limit: 7).isEmpty)
        }
    }

    @Test("makes the verifier refuse an otherwise valid token of a revoked user")
    func verifier() async throws {
        try await self.with { store, _, make in
            _ = try await store.revoke(user: "ada", before: Tokens.now)
            let verifier = TokenVerifier(
                secrets: [Tokens.secret],
                keySet: nil,
                rules: TokenRules(),
                revocations: make(100),
                now: { Tokens.now }
            )
            let exp = #""exp":1795000600"#
            for claims in [
                #"{"sub":"ada",\#(exp)}"#, #"{"sub":"ada","iat":1794999999}"#, #"{"sub":"ada","iat":1.7e9,\#(exp)}"#,
            ] {
                let error = await #expect(throws: TokenFault.self) { try await verifier.verify(Tokens.secret(claims)) }
                #expect(error?.description == "the token was revoked")
            }
            _ = try await verifier.verify(Tokens.secret(#"{"sub":"ada","iat":1795000000}"#))
            _ = try await verifier.verify(Tokens.secret(#"{"sub":"eve",\#(exp)}"#))
        }
    }
}
