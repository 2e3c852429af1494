// Carillon · JobAllowanceTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTP
import Testing

@Suite("What a service's token allows", .timeLimit(.minutes(10)))
struct JobAllowanceTests {
    @Test(
        "types by name or by beginning, audiences by the field",
        arguments: [
            ("", "invoice", ["user"], []),
            (#","types":["invoice","news_*"]"#, "invoice", ["user"], []),
            (#","types":["invoice","news_*"]"#, "news_today", ["all"], []),
            (#","types":["invoice","news_*"]"#, "news_", ["all"], []),
            (#","types":["invoice","news_*"]"#, "news", ["user"], ["type"]),
            (#","types":["invoice","news_*"]"#, "invoices", ["user"], ["type"]),
            (#","types":["*"]"#, "anything", ["user"], []),
            (#","types":[]"#, "invoice", ["user"], ["type"]),
            (#","types":["invoice"]"#, nil, ["event", "user"], ["event"]),
            (#","types":["invoice"]"#, "invoice", ["event", "user"], ["event"]),
            (#","types":["e\u0301*"]"#, "\u{e9}a", ["user"], ["type"]),
            (#","audiences":["user","users"]"#, "invoice", ["type", "users", "title"], []),
            (#","audiences":["user","users"]"#, nil, ["event", "user"], []),
            (#","audiences":["user","users"]"#, "invoice", ["topic"], ["topic"]),
            (#","audiences":["topic"]"#, "invoice", ["all"], ["all"]),
            (#","audiences":[]"#, "invoice", ["user"], ["user"]),
            (#","types":["a"],"audiences":["user"]"#, "b", ["all"], ["type", "all"]),
        ] as [(String, String?, [String], [String])]
    )
    func faults(claims: String, type: String?, fields: [String], expected: [String]) async throws {
        let token = Tokens.secret(#"{"sub":"backend","iat":1795000000,"scope":"service"\#(claims)}"#)
        let caller = try await Tokens.verifier().verify(token)
        #expect(caller.allowance.faults(type: type, fields: fields).map(\.field) == expected)
        #expect(caller.allowance.isLimited == !claims.isEmpty)
    }
}
