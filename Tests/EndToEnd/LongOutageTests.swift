// Carillon · LongOutageTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTP
import Support
import Testing

/// A server stalls for a minute, longer than any lease or deadline; no accepted job is lost.
///
/// Not serialized, so that both outages pass at the same time.
@Suite(.timeLimit(.minutes(10)))
struct LongOutageTests {
    private static let outage: Duration = .seconds(60)
    private static let online = "online"
    private static let offline = "offline"
    private static let phone = "offline-phone"

    @Test("during a minute without Redis, jobs over HTTP are refused quickly; accepted jobs arrive")
    func redis() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            try await gateway.register(user: Self.offline, platform: "android", token: Self.phone)
            let socket = try await TestSocket.synced(port: gateway.port, user: Self.online)
            try await Self.append("before", to: stack)

            try await stack.redis.stall()
            try await eventually("readyz says which") {
                let answer = try await gateway.call(.get, "/readyz", token: nil)
                return answer.status == 503 && answer.body["redis"]?.string == "out of reach"
                    && answer.body["postgres"]?.string == "ok"
            }
            let statuses = try await Self.enqueue(through: gateway)
            #expect(statuses.allSatisfy { $0 == 503 }, "\(statuses)")
            stack.redis.resume()

            try await Self.recover(gateway)
            // The callers were told to retry and do; a job that got through the first time is known
            // by its id.
            for number in statuses.indices {
                for user in [Self.online, Self.offline] {
                    #expect(try await Self.enqueue(number, for: user, through: gateway) == 202)
                }
            }
            try await Self.append("after", to: stack)
            try await Self.expectAll(of: statuses.count, socket, stack)
        }
    }

    @Test("during a minute without PostgreSQL, jobs are accepted, and they arrive afterwards")
    func postgres() async throws {
        let server = try await PostgresServer.start()
        try await Stack.with(database: server.url) { stack in
            let gateway = try await stack.startGateway()
            _ = try await stack.startDispatcher()
            try await gateway.register(user: Self.offline, platform: "android", token: Self.phone)
            let socket = try await TestSocket.synced(port: gateway.port, user: Self.online)
            try await Self.append("before", to: stack)

            try await server.stall()
            try await eventually("readyz says which") {
                let answer = try await gateway.call(.get, "/readyz", token: nil)
                return answer.status == 503 && answer.body["postgres"]?.string == "out of reach"
                    && answer.body["redis"]?.string == "ok"
            }
            let statuses = try await Self.enqueue(through: gateway)
            #expect(statuses.allSatisfy { $0 == 202 }, "\(statuses)")
            server.resume()

            try await Self.recover(gateway)
            try await Self.append("after", to: stack)
            try await Self.expectAll(of: statuses.count, socket, stack)
        }
    }

    // MARK: Steps

    /// Appends one job for the online user and one for the offline user.
    private static func append(_ title: String, to stack: Stack) async throws {
        for user in [Self.online, Self.offline] {
            try await stack.append([("user", user), ("type", "payment_received"), ("title", "\(title) \(user)")])
        }
    }

    /// Posts a pair of jobs every three seconds while the outage lasts.
    ///
    /// - Returns: the status of each pair.
    private static func enqueue(through gateway: Gateway) async throws -> [Int] {
        let clock = ContinuousClock()
        let start = clock.now
        var statuses: [Int] = []
        while clock.now - start < Self.outage {
            let number = statuses.count
            async let first = Self.enqueue(number, for: Self.online, through: gateway)
            async let second = Self.enqueue(number, for: Self.offline, through: gateway)
            let answers = try await (first, second)
            #expect(answers.0 == answers.1)
            statuses.append(answers.0)
            let next = start + .seconds(3) * statuses.count
            try await eventually("it is time for the next pair") { clock.now >= next }
        }
        return statuses
    }

    /// Posts a job and returns the answer's status.
    private static func enqueue(_ number: Int, for user: String, through gateway: Gateway) async throws -> Int {
        try await gateway.call(
            .post,
            "/v1/jobs",
            token: try await Stack.token(user: "shop", scope: .service),
            json: """
                {"id":"\(number)","user":"\(user)","type":"payment_received","title":"during \(number) \(user)"}
                """
        ).status
    }

    private static func recover(_ gateway: Gateway) async throws {
        try await eventually("it is ready again") {
            try await gateway.call(.get, "/readyz", token: nil).status == 200
        }
    }

    /// Waits until every accepted job has arrived, once on the socket and once on the phone.
    private static func expectAll(of count: Int, _ socket: TestSocket, _ stack: Stack) async throws {
        #expect(count > 5)
        func titles(_ user: String) -> Set<String> {
            Set(["before \(user)", "after \(user)"] + (0..<count).map { "during \($0) \(user)" })
        }
        try await eventually("the socket that stayed open has all", within: .seconds(60)) {
            Self.seen(by: socket).isSuperset(of: titles(Self.online))
        }
        try await eventually("the phone has all", within: .seconds(60)) {
            Set(stack.pushed()[Self.phone] ?? []).isSuperset(of: titles(Self.offline))
        }
        #expect(Self.seen(by: socket) == titles(Self.online))
        #expect(socket.titles.count == Set(socket.titles).count)
        #expect(socket.closeCode == nil)
        #expect(stack.pushed()[Self.phone]?.sorted() == titles(Self.offline).sorted())
    }

    /// Titles received by frame, or by the sync that repairs a gap.
    private static func seen(by socket: TestSocket) -> Set<String> {
        let synced = socket.all("sync").flatMap { $0["notifications"]?.array ?? [] }
        return Set(socket.titles + synced.compactMap { $0["title"]?.string })
    }
}
