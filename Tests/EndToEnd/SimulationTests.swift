// Carillon · SimulationTests.swift
// SPDX-License-Identifier: Apache-2.0

import Fixtures
import JSON
import Postgres
import Redis
import Services
import Testing
import Transfer

/// What a simulation says is what the job would do.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct SimulationTests {
    @Test("a simulation has the text in the user's language and the caps as they stand, and counts nothing")
    func capsAndText() async throws {
        try await Stack.with { stack in
            let environment = try stack.catalog(
                """
                types:
                  offer:
                    severity: info
                    delivery: push
                    cap: {count: 2, per: 1h}
                    templates:
                      en: {title: "{{n}} offers", body: "For you"}
                      de: {title: "{{n}} Angebote", body: "Für Sie"}
                """
            )
            let gateway = try await stack.startGateway(environment: environment)
            _ = try await stack.startDispatcher(environment: environment)
            try await gateway.register(user: "ada", platform: "android", token: "ada-phone")
            try await gateway.set(#"{"locale":"de-CH"}"#, of: "ada")
            let admin = try await Stack.token(user: "root", scope: .admin)
            func simulate(_ job: String) async throws -> Gateway.Answer {
                try await gateway.call(
                    .post, "/v1/admin/simulate", token: admin, json: #"{"user":"ada","job":\#(job)}"#)
            }
            let job = #"{"type":"offer","vars":{"n":3}}"#
            for count in 1...2 {
                for _ in 0..<3 {
                    let answer = try await simulate(job)
                    #expect(answer.status == 200)
                    #expect(answer.body["title"]?.string == "3 Angebote")
                    #expect(answer.body["body"]?.string == "Für Sie")
                    #expect(answer.body["locale"]?.string == "de-CH")
                    #expect(answer.body["cap"] == .null)
                    #expect(answer.body["steps"]?.texts("step") == ["store", "push"])
                }
                try await stack.append([("user", "ada"), ("type", "offer"), ("vars", #"{"n":\#(count)}"#)])
                try await eventually("it is pushed") { stack.pushed()["ada-phone"]?.count == count }
            }
            let capped = try await simulate(job)
            #expect(capped.body["cap"]?.string == "type")
            #expect(capped.body["steps"]?.texts("step") == ["store", "hold_back", "settle"])
            #expect(capped.body["steps"]?.array?[1]["reason"]?.string == "capped_by_type")
            let faulty = try await simulate(#"{"type":"offer","vars":{}}"#)
            #expect(faulty.status == 422)
            #expect(faulty.faults == ["job.vars.n"])
        }
    }
}
