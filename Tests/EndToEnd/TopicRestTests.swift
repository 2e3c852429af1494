// Carillon · TopicRestTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import HTTP
import Support
import Testing

/// Subscriptions over REST.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct TopicRestTests {
    private static func topics(_ stack: Stack, user: String) async throws -> [String] {
        let rows = try await stack.query(
            "SELECT topic FROM carillon.subscriptions WHERE user_id = $1 ORDER BY topic", .text(user))
        return try rows.map { try $0.text(0) }
    }

    @Test("users subscribe to open topics, services subscribe anyone")
    func subscriptions() async throws {
        try await Stack.with { stack in
            let text = """
                types: {t: {}}
                topics:
                  news: {open: true}
                  "team/*": {open: true}
                  team/board: {open: false}
                """
            let gateway = try await stack.startGateway(environment: try stack.catalog(text))
            let ada = try await Stack.token(user: "ada")
            let service = try await Stack.token(user: "backend", scope: .service)
            for topic in ["news", "news", "team%2Fblue"] {
                #expect(try await gateway.call(.put, "/v1/topics/\(topic)/subscription", token: ada).status == 204)
            }
            for topic in ["team%2Fboard", "staff", "team"] {
                let answer = try await gateway.call(.put, "/v1/topics/\(topic)/subscription", token: ada)
                #expect(answer.status == 403)
                #expect(answer.type == "application/problem+json")
            }
            #expect(try await Self.topics(stack, user: "ada") == ["news", "team/blue"])
            #expect(try await gateway.call(.put, "/v1/topics/staff/members/ada", token: ada).status == 403)
            for _ in 0..<2 {
                #expect(try await gateway.call(.put, "/v1/topics/staff/members/ada", token: service).status == 204)
            }
            #expect(try await Self.topics(stack, user: "ada") == ["news", "staff", "team/blue"])
            for _ in 0..<2 {
                #expect(try await gateway.call(.delete, "/v1/topics/news/subscription", token: ada).status == 204)
                #expect(try await gateway.call(.delete, "/v1/topics/staff/members/ada", token: service).status == 204)
            }
            #expect(try await Self.topics(stack, user: "ada") == ["team/blue"])
            let long = String(repeating: "t", count: 129)
            let answer = try await gateway.call(.put, "/v1/topics/\(long)/subscription", token: ada)
            #expect(answer.status == 400)
            #expect(answer.faults == ["topic"])
        }
    }
}
