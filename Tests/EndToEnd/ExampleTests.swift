// Carillon · ExampleTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support
import Testing

/// The programs of `examples/`, run as a developer runs them.
@Suite(.serialized, .timeLimit(.minutes(10)))
struct ExampleTests {
    private static let patience = Duration.seconds(240)

    @Test(
        "each example succeeds, and again on a second run",
        .enabled(if: Commands.have("python3", "psql")),
        arguments: ["accounting", "allowance", "household", "news", "scheduler"])
    func example(name: String) async throws {
        try await Stack.with { stack in
            // Shortens a digest's window of two minutes.
            let catalog = try stack.catalog(replacing: "window: 2m", with: "window: 4s")
            let settings = catalog.merging(stack.mailSettings()) { one, _ in one }
            let gateway = try await stack.startGateway(environment: settings)
            _ = try await stack.startDispatcher(environment: settings)
            var variables = try await stack.developerVariables(gateway)
            variables.merge(catalog) { $1 }
            // The examples find this file and nothing else.
            try Stack.write(variables, into: stack.directory.path)
            for run in 1...2 {
                let process = try await ChildProcess.spawn(
                    Stack.checkout.appending(path: "examples/\(name)/run").path,
                    name: "\(name)-\(run)",
                    environment: ["CARILLON_DATA": stack.directory.path],
                    directory: stack.directory.path
                )
                let exit = try await process.waitForExit(within: Self.patience)
                #expect(exit == .code(0), "\(process.output())\(process.errors())")
                #expect(process.output().hasSuffix("done\n"))
            }
            #expect(try await stack.deadReasons().isEmpty)
        }
    }

    @Test("without a stack an example says what to start and fails", .enabled(if: Commands.have("python3")))
    func noStack() async throws {
        let directory = try TemporaryDirectory("no-stack")
        let process = try await ChildProcess.spawn(
            Stack.checkout.appending(path: "examples/news/run").path,
            name: "news",
            environment: ["CARILLON_DATA": directory.path, "GATEWAY_URL": ""],
            directory: directory.path
        )
        #expect(try await process.waitForExit() == .code(1))
        #expect(process.errors().contains("start the stack first: deploy/up"))
    }
}
