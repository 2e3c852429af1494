// Carillon · DescriptionTests.swift
// SPDX-License-Identifier: Apache-2.0

import Fixtures
import JSON
import Testing
import Transfer

/// The API describes itself, and refuses what it does not describe.
@Suite(.serialized, .timeLimit(.minutes(3)))
struct DescriptionTests {
    @Test("the description is there for everyone")
    func document() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let answer = try await gateway.call(.get, "/openapi.json", token: nil)
            #expect(answer.status == 200)
            #expect(answer.type == "application/json")
            #expect(answer.body["openapi"]?.string == "3.1.0")
            #expect(answer.body["paths"]?["/v1/notifications"]?["get"] != nil)
        }
    }

    @Test("a method that a path does not have is 405 and names those that it has; an unknown path is 404")
    func methods() async throws {
        try await Stack.with { stack in
            let gateway = try await stack.startGateway()
            let token = try await Stack.token(user: "ada")
            let cases: [(TransferRequest.Method, String, String)] = [
                (.put, "/v1/notifications", "DELETE, GET, HEAD"), (.get, "/v1/notifications/read", "POST"),
                (.post, "/v1/settings", "GET, HEAD, PUT"), (.delete, "/healthz", "GET, HEAD"),
            ]
            for (method, path, allowed) in cases {
                let answer = try await gateway.call(method, path, token: token)
                #expect(answer.status == 405, "\(method) \(path)")
                #expect(answer.header("allow") == allowed)
                #expect(answer.type == "application/problem+json")
            }
            #expect(try await gateway.call(.get, "/v1/nowhere", token: token).status == 404)
        }
    }
}
