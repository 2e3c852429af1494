// Carillon · Workbench.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Foundation
import HTTP
import Support

/// A checkout as a developer has it after `deploy/up`, to run the commands of the pages in.
struct Workbench {
    let stack: Stack
    let gateway: Gateway
    let directory: String
    private let variables: [String: String]

    /// Starts both programs and lays out the folders of the checkout, `.local/env` and the
    /// programs.
    static func open(_ stack: Stack) async throws -> Workbench {
        // The webhook receivers run on this machine.
        let settings = stack.mailSettings().merging(["WEBHOOKS_PRIVATE": "on"]) { $1 }
        let gateway = try await stack.startGateway(environment: settings)
        _ = try await stack.startDispatcher(environment: settings)
        var variables = try await stack.developerVariables(gateway)
        let directory = stack.directory.file("checkout")
        let files = FileManager.default
        for folder in ["", "/.local", "/.build"] {
            try files.createDirectory(atPath: directory + folder, withIntermediateDirectories: true)
        }
        for name in ["deploy", "docs", "examples", "Tests"] {
            try files.createSymbolicLink(
                atPath: "\(directory)/\(name)", withDestinationPath: Stack.checkout.appending(path: name).path)
        }
        try files.createSymbolicLink(
            atPath: "\(directory)/.build/release", withDestinationPath: TestProducts.directory)
        try Stack.write(variables, into: "\(directory)/.local")
        variables["USER_TOKEN"] = try await Stack.token(user: "ada")
        variables["ADMIN_TOKEN"] = try await Stack.token(user: "operator", scope: .admin)
        let path = ProcessInfo.processInfo.environment["PATH"] ?? ""
        variables["PATH"] = "\(TestProducts.directory):\(path)"
        variables["PYTHONUNBUFFERED"] = "1"
        // Makes the user of the pages known, so that a broadcast has an audience.
        let answer = try await gateway.call(
            .put, "/v1/settings", token: try await Stack.token(user: "ada"), json: #"{"email":"ada@example.com"}"#)
        guard answer.status == 200 else { throw FixtureError("user not created: \(answer.body)") }
        return Workbench(stack: stack, gateway: gateway, directory: directory, variables: variables)
    }

    /// Starts a program in a language; returns nil and reports it if the language is not installed.
    func start(
        _ language: String,
        _ text: String,
        name: String,
        environment: [String: String] = [:]
    ) async throws -> ChildProcess? {
        let suffixes = ["sh": "sh", "sql": "sql", "python": "py", "javascript": "mjs", "go": "go", "swift": "swift"]
        guard let suffix = suffixes[language] else { throw FixtureError("no command runs \(language)") }
        let file = "\(self.directory)/\(name).\(suffix)"
        try Data(text.utf8).write(to: URL(filePath: file))
        let database = self.variables["DATABASE_URL"] ?? ""
        let commands = [
            "sh": ["bash", "-euo", "pipefail", file],
            "sql": ["psql", "-X", "-v", "ON_ERROR_STOP=1", "-f", file, database],
            "python": [PythonClient.interpreter, file],
            // Node 20 has WebSockets only with this option.
            "javascript": ["node", "--experimental-websocket", file],
            "go": ["go", "run", file],
            "swift": ["swiftc", "-typecheck", "-swift-version", "6", "-parse-as-library", file],
        ]
        guard var command = commands[language], Self.has(language) else { return nil }
        command = ["-C", self.directory] + command
        return try await ChildProcess.spawn(
            "env",
            command,
            name: name,
            environment: self.variables.merging(environment) { $1 },
            directory: self.stack.directory.path
        )
    }

    /// Whether a language and the modules that the pages import are installed; reports what is
    /// missing.
    private static func has(_ language: String) -> Bool {
        switch language {
        case "python": ["redis", "requests", "psycopg", "websockets", "socketio"].allSatisfy { PythonClient.has($0) }
        case "javascript": Commands.have("node")
        case "go": Commands.have("go")
        case "swift": Commands.have("swiftc")
        case "sql": Commands.have("psql")
        default: Commands.have("bash", "psql", "redis-cli", "curl")
        }
    }

    /// Waits until a user has a notification with this title.
    func waitForNotice(_ notice: Snippet.Notice) async throws {
        try await eventually("\(notice.user) is notified: \(notice.title)") {
            try await self.stack.statuses(user: notice.user)[notice.title] != nil
        }
    }
}
