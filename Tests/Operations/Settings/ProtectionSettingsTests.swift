// Carillon · ProtectionSettingsTests.swift
// SPDX-License-Identifier: Apache-2.0

import Operations
import Testing

@Suite("Settings of protection", .timeLimit(.minutes(10)))
struct ProtectionSettingsTests {
    @Test("Without a word, only our own pages open sockets, and users have generous bounds")
    func defaults() {
        let protection = Readings([:]).gateway.protection
        #expect(protection.allowedOrigins == [])
        #expect(protection.trustedProxies.isEmpty)
        #expect(protection.userConnections == 32 && protection.addressConnections == nil)
        #expect(protection.userCalls == 50 && protection.userMessages == 50)
    }

    @Test("Every variable finds its place; zero takes a bound away")
    func places() {
        let readings = Readings([
            "ALLOWED_ORIGINS": "https://App.example.com, http://localhost:3000", "TRUSTED_PROXIES": "10.0.0.0/8, ::1",
            "USER_CONNECTIONS": "3", "ADDRESS_CONNECTIONS": "4", "USER_CALLS_PER_SECOND": "0",
            "USER_MESSAGES_PER_SECOND": "6",
        ])
        #expect(readings.gatewayFaults.isEmpty)
        let protection = readings.gateway.protection
        #expect(protection.allowedOrigins == ["https://app.example.com", "http://localhost:3000"])
        #expect(protection.trustedProxies == ["10.0.0.0/8", "::1"])
        #expect(protection.userConnections == 3 && protection.addressConnections == 4)
        #expect(protection.userCalls == nil && protection.userMessages == 6)
        #expect(Readings(["ALLOWED_ORIGINS": "*"]).gateway.protection.allowedOrigins == nil)
    }

    @Test(
        "What is malformed is named",
        arguments: [
            ("ALLOWED_ORIGINS", "https://*.example.com"), ("ALLOWED_ORIGINS", "https://a.example,*"),
            ("ALLOWED_ORIGINS", "app.example.com"), ("ALLOWED_ORIGINS", "https://a.example/path"),
            ("USER_CONNECTIONS", "0"), ("ADDRESS_CONNECTIONS", "-1"), ("USER_CALLS_PER_SECOND", "many"),
        ]
    )
    func faults(name: String, text: String) {
        let faults = Readings([name: text]).gatewayFaults
        #expect(faults.count == 1 && faults.first?.hasPrefix("\(name) must be ") == true, "\(faults)")
    }
}
