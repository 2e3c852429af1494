// Carillon · ConfigurationTests.swift
// SPDX-License-Identifier: Apache-2.0

import Support
import Testing

/// A faulty configuration ends the start with exit code 78 and names every fault.
@Suite(.timeLimit(.minutes(10)))
struct ConfigurationTests {
    private static let cleared = [
        "REDIS_URL": "", "DATABASE_URL": "", "CATALOG": "", "AUTH_JWT_SECRET": "", "AUTH_JWKS": "",
    ]

    @Test(
        "a faulty configuration is refused with every fault named and no secret shown",
        arguments: [("gateway", "serve"), ("dispatcher", "run")])
    func faults(program: String, command: String) async throws {
        let directory = try TemporaryDirectory("configuration")
        var environment = Self.cleared
        environment["REDIS_URL"] = "http://127.0.0.1"
        environment["GATEWAY_PORT"] = "80a"
        environment["METRICS_PORT"] = "-1"
        environment["CATALOG"] = "/nowhere/catalog.yaml"
        environment["LOG_FORMAT"] = "xml"
        environment["AUTH_JWT_SECRET"] = "hunter2-too-short"
        environment["FCM_CREDENTIALS"] = "/nowhere/account.json"
        let process = try await ChildProcess.spawn(
            TestProducts.path(program),
            [command],
            environment: environment,
            directory: directory.path
        )
        #expect(try await process.waitForExit() == .code(78))
        let errors = process.errors()
        let shared = ["REDIS_URL", "DATABASE_URL", "CATALOG", "LOG_FORMAT"]
        let own = program == "gateway" ? ["GATEWAY_PORT", "AUTH_JWT_SECRET"] : ["METRICS_PORT", "FCM_CREDENTIALS"]
        for name in shared + own { #expect(errors.contains(name), "\(name) is not named") }
        #expect(!errors.contains("hunter2"))
    }
}
