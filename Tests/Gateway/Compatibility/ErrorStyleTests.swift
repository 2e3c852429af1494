// Carillon · ErrorStyleTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Testing

@testable import HTTP

@Suite("Errors as each system's clients read them", .timeLimit(.minutes(10)))
struct ErrorStyleTests {
    private static let faults = Problem(
        .unprocessableContent,
        "some fields are at fault",
        faults: [
            JobFault("fcm_token", "is missing"), JobFault("platform", "is missing"), JobFault("platform", "is odd"),
        ]
    )
    private static let text = "fcm_token is missing; platform is missing; platform is odd"

    private static func value(_ problem: Problem, _ style: ErrorStyle) throws -> JSONValue {
        try JSONParser.parse(style.body(of: problem))
    }

    @Test("Every style says in detail, error and message what is wrong")
    func texts() throws {
        for style in [ErrorStyle.hybrid, .allowance, .news, .tasks, .edge] {
            let value = try Self.value(Self.faults, style)
            for key in ["detail", "error", "message"] { #expect(value[key]?.string == Self.text) }
            #expect(value["status"]?.integer == Int64(style.invalid.code))
            let plain = try Self.value(Problem(.notFound, "there is no such thing"), style)
            #expect(plain["detail"]?.string == "there is no such thing")
            #expect(plain["status"]?.integer == 404)
            #expect(plain["errors"] == nil)
        }
    }

    @Test("Fields at fault are 422 where FastAPI stood, and 400 elsewhere; other statuses stay")
    func statuses() {
        #expect(ErrorStyle.hybrid.status(of: Self.faults) == .unprocessableContent)
        #expect(ErrorStyle.news.status(of: Self.faults) == .unprocessableContent)
        for style in [ErrorStyle.allowance, .tasks, .edge] {
            #expect(style.status(of: Self.faults) == .badRequest)
            #expect(style.status(of: Problem(.serviceUnavailable, "later", retryAfter: 2)) == .serviceUnavailable)
        }
    }

    @Test("errors: by field for ASP.NET's clients, a list for the others; PostgREST's members for the edge scheduler's")
    func members() throws {
        let grouped = try Self.value(Self.faults, .allowance)["errors"]
        #expect(grouped?["fcm_token"]?.strings == ["is missing"])
        #expect(grouped?["platform"]?.strings == ["is missing", "is odd"])
        let list = try Self.value(Self.faults, .hybrid)["errors"]?.array
        #expect(list?.compactMap { $0["field"]?.string } == ["fcm_token", "platform", "platform"])
        let edge = try Self.value(Self.faults, .edge)
        #expect(edge["code"]?.string == "PGRST102")
        #expect(edge["details"] == .null)
        #expect(edge["hint"] == .null)
    }

    @Test(
        "PostgREST's codes by status, unless the error says its own",
        arguments: [
            (401, "PGRST301"), (403, "42501"), (405, "PGRST117"), (406, "PGRST116"), (409, "23505"),
            (429, "429"), (500, "XX000"), (503, "PGRST000"),
        ]
    )
    func codes(status: Int, code: String) throws {
        let status = HTTPResponse.Status(code: status)
        #expect(try Self.value(Problem(status, "no"), .edge)["code"]?.string == code)
        let own = try Self.value(Problem(status, "no", code: "42703", details: "Results contain 0 rows"), .edge)
        #expect(own["code"]?.string == "42703")
        #expect(own["details"]?.string == "Results contain 0 rows")
    }
}
