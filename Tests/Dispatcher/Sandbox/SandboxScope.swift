// Carillon · SandboxScope.swift
// SPDX-License-Identifier: Apache-2.0

import Sandbox
import Testing

/// Runs a suite with one sandbox that its tests share, each with device tokens of its own.
struct SandboxScope: SuiteTrait, TestScoping {
    @TaskLocal static var client: SandboxClient?

    @concurrent
    func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @concurrent @Sendable () async throws -> Void
    ) async throws {
        var configuration = SandboxConfiguration()
        configuration.retryAfter = 7
        configuration.slowPause = SlowPause(.milliseconds(50))
        try await ProviderSandbox.with(configuration: configuration) { sandbox in
            let client = try await SandboxClient(sandbox)
            try await Self.$client.withValue(client) { try await function() }
        }
    }
}

extension Trait where Self == SandboxScope {
    /// One sandbox for the suite, available as `SandboxScope.client`.
    static var sandbox: SandboxScope { SandboxScope() }
}
