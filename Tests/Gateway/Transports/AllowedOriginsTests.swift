// Carillon · AllowedOriginsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Sockets
import Testing

@Suite("Origins of pages", .timeLimit(.minutes(10)))
struct AllowedOriginsTests {
    @Test("Sockets open for listed pages and our own")
    func admits() {
        let listed = AllowedOrigins.listed(["https://app.example.com"])
        let table: [(origin: String, host: String?, isAdmitted: Bool)] = [
            ("https://app.example.com", nil, true), ("HTTPS://App.Example.com", nil, true),
            ("https://app.example.com:8443", nil, false), ("http://app.example.com", nil, false),
            ("https://gateway.example.com", "gateway.example.com", true),
            ("https://gateway.example.com:81", "gateway.example.com", false),
            ("https://evil.example", "gateway.example.com", false), ("null", "null", false), ("", "", false),
            ("https://", "", false), ("https://x", nil, false),
        ]
        for row in table { #expect(listed.admits(row.origin, host: row.host) == row.isAdmitted, "\(row)") }
        #expect(AllowedOrigins.any.admits("https://evil.example", host: nil))
    }

    @Test("Answers are for listed pages; nobody has credentials where all are allowed")
    func grants() {
        let listed = AllowedOrigins.listed(["https://app.example.com"])
        #expect(listed.grant("https://app.example.com") != nil)
        #expect(listed.grant("https://evil.example") == nil)
        #expect(listed.grant("https://app.example.com") != AllowedOrigins.any.grant("https://app.example.com"))
        #expect(AllowedOrigins.any.grant("https://a.example") == AllowedOrigins.any.grant("https://b.example"))
        let open = AllowedOrigins.any.grant("https://app.example.com", allowsCredentials: true)
        #expect(open == listed.grant("https://app.example.com"), "but on paths that are made for it")
        #expect(listed.grant("https://evil.example", allowsCredentials: true) == nil)
        let app = AllowedOrigins.anyWithCredentials.grant("https://app.example.com")
        #expect(app != nil && app == listed.grant("https://app.example.com"))
    }
}
