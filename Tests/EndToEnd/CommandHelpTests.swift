// Carillon · CommandHelpTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Support
import Testing

/// The help of both programs, and the page about it.
@Suite(.timeLimit(.minutes(10)))
struct CommandHelpTests {
    /// A command without subcommands.
    private struct Command {
        let path: [String]
        let discussion: String
        /// Long names of its options and flags.
        let options: [String]
    }

    private static func output(_ program: String, _ arguments: [String]) async throws -> String {
        let directory = try TemporaryDirectory("help")
        let process = try await ChildProcess.spawn(
            TestProducts.path(program), arguments, environment: ["CATALOG": ""], directory: directory.path)
        try #require(try await process.waitForExit() == .code(0), "\(program) \(arguments): \(process.errors())")
        return process.output()
    }

    private static func commands(_ program: String) async throws -> [Command] {
        let text = try await self.output(program, ["--experimental-dump-help"])
        let root = try JSONParser.parse(Array(text.utf8))["command"]
        return self.leaves(try #require(root), above: [])
    }

    private static func leaves(_ value: JSONValue, above: [String]) -> [Command] {
        let path = above + [value["commandName"]?.string ?? ""]
        let below = (value["subcommands"]?.array ?? []).filter { $0["commandName"]?.string != "help" }
        guard below.isEmpty else { return below.flatMap { self.leaves($0, above: path) } }
        let options = (value["arguments"]?.array ?? []).filter { $0["kind"]?.string != "positional" }
            .compactMap { $0["names"]?.array?.first { $0["kind"]?.string == "long" }?["name"]?.string }
            .filter { !["help", "version"].contains($0) }
        return [Command(path: path, discussion: value["discussion"]?.string ?? "", options: options)]
    }

    @Test("every command's help has examples of that command", arguments: ["gateway", "dispatcher"])
    func examples(program: String) async throws {
        let commands = try await Self.commands(program)
        #expect(commands.count >= 5)
        for command in commands {
            let name = command.path.joined(separator: " ")
            let parts = command.discussion.split(separator: "Examples:\n", maxSplits: 1)
            guard parts.count == 2 else {
                Issue.record("\(name) has no examples")
                continue
            }
            #expect(parts[1].contains("\(name)"), "\(name) has no example of its own")
            // Longer lines wrap on an 80-column terminal and cannot be copied.
            let lines = command.discussion.split(separator: "\n")
            #expect(lines.allSatisfy { $0.count <= 80 }, "\(name) has lines that are too long")
            let help = try await Self.output(program, Array(command.path.dropFirst()) + ["--help"])
            #expect(help.contains("Examples:"), "\(name) --help")
        }
    }

    @Test("docs/command-line.md lists every command with its options, and no others")
    func page() async throws {
        let text = try Stack.text("docs/command-line.md")
        var sections: [String: String] = [:]
        for section in text.split(separator: "\n### ").dropFirst() {
            let title = section.prefix { !$0.isNewline }
            let body = section.dropFirst(title.count).split(separator: "\n## ", maxSplits: 1).first ?? ""
            for name in title.split(separator: "`") where !name.allSatisfy({ " ·".contains($0) }) {
                sections[String(name)] = String(body)
            }
        }
        var known: Set<String> = []
        for program in ["gateway", "dispatcher"] {
            for command in try await Self.commands(program) {
                let name = command.path.joined(separator: " ")
                known.insert(name)
                guard let section = sections[name] else {
                    Issue.record("docs/command-line.md has no section `\(name)`")
                    continue
                }
                // Options that every command has are documented once.
                for option in command.options where !["config", "json"].contains(option) {
                    #expect(section.contains("`--\(option)"), "--\(option) of \(name)")
                }
                let named = section.matches(of: #/`--([a-z-]+)/#).map { String($0.output.1) }
                #expect(Set(named).subtracting(command.options).isEmpty, "options of \(name)")
            }
        }
        #expect(Set(sections.keys) == known)
    }

    @Test(
        "completion scripts are printed for each shell",
        arguments: ["gateway", "dispatcher"], ["bash", "zsh", "fish"]
    )
    func completion(program: String, shell: String) async throws {
        let script = try await Self.output(program, ["--generate-completion-script", shell])
        #expect(script.contains(program))
        #expect(script.contains("doctor"))
        #expect(script.utf8.count > 1_000)
    }

    @Test("types are completed from the catalog if there is one")
    func types() async throws {
        let directory = try TemporaryDirectory("completion")
        let catalog = directory.file("catalog.yaml")
        let text = "types: {invoice_created: {severity: info}, invoice_paid: {severity: info}, offer: {severity: info}}"
        try Data(text.utf8).write(to: URL(filePath: catalog))
        for (path, expected) in [(catalog, ["invoice_created", "invoice_paid"]), ("/nowhere", [])] {
            let process = try await ChildProcess.spawn(
                TestProducts.path("dispatcher"),
                ["---completion", "enqueue", "--", "--type", "3", "8", "dispatcher", "enqueue", "--type", "invoice_"],
                name: "completion-\(expected.count)",
                environment: ["CATALOG": path, "SAP_SHELL": "bash", "SAP_SHELL_VERSION": "5"],
                directory: directory.path
            )
            #expect(try await process.waitForExit() == .code(0), "\(process.errors())")
            #expect(process.output().split(separator: "\n").map { String($0) } == expected)
        }
    }

    @Test("a wrong command line exits with 64, a missing settings file with 78")
    func usage() async throws {
        let directory = try TemporaryDirectory("usage")
        let table: [(String, [String], Int32)] = [
            ("dispatcher", ["lag", "--watch", "--max", "1"], 64), ("dispatcher", ["lag", "--max", "-1"], 64),
            ("dispatcher", ["trace", "no-id"], 64), ("dispatcher", ["nothing"], 64),
            ("dispatcher", ["simulate", "--user", "u", "--type", "x", "--at", "noon"], 64),
            ("gateway", ["token"], 64), ("gateway", ["serve", "--colour"], 64),
            ("gateway", ["migrate", "--config", "/nowhere/gateway.env"], 78),
            ("dispatcher", ["doctor", "--config", "/nowhere/dispatcher.env"], 78),
            ("dispatcher", ["lag", "--config", "/nowhere/dispatcher.env"], 78),
        ]
        for (index, (program, arguments, code)) in table.enumerated() {
            let process = try await ChildProcess.spawn(
                TestProducts.path(program), arguments, name: "usage-\(index)", directory: directory.path)
            #expect(try await process.waitForExit() == .code(code), "\(program) \(arguments): \(process.errors())")
        }
    }

    /// A command's standard error and exit code.
    private static func refusal(_ program: String, _ arguments: [String], _ environment: [String: String] = [:])
        async throws -> (text: String, code: Int32?)
    {
        let directory = try TemporaryDirectory("refusal")
        let process = try await ChildProcess.spawn(
            TestProducts.path(program), arguments, environment: environment, directory: directory.path)
        guard case .code(let code) = try await process.waitForExit() else { return (process.errors(), nil) }
        return (process.errors(), code)
    }

    @Test(
        "--version prints the newest release of the changelog, or the next one for a development build",
        arguments: ["gateway", "dispatcher"])
    func version(program: String) async throws {
        let version = try await Self.output(program, ["--version"]).trimmingCharacters(in: .newlines)
        let number = try #require(version.wholeMatch(of: #/(\d+\.\d+\.\d+)(-dev)?/#))
        let changes = try Stack.text("CHANGELOG.md")
        let newest = try #require(changes.firstMatch(of: #/\n## (\S+)/#)).output.1
        #expect(newest == (number.output.2 == nil ? number.output.1 : "Unreleased"))
    }

    @Test("a wrong command line prints that command's usage and a suggestion")
    func suggestions() async throws {
        let table: [(String, [String], message: String, usage: String)] = [
            ("dispatcher", ["enqeue"], "Unknown command 'enqeue'. Did you mean 'enqueue'?", "dispatcher <subcommand>"),
            ("dispatcher", ["dead", "lits"], "Did you mean 'list'?", "dispatcher dead <subcommand>"),
            ("dispatcher", ["broad"], "Did you mean 'broadcast'?", "dispatcher <subcommand>"),
            ("gateway", ["start"], "Unknown command 'start'. Known are serve, migrate,", "gateway <subcommand>"),
            ("dispatcher", ["lag", "--wach"], "Did you mean '--watch'?", "dispatcher lag [--config"),
            ("gateway", ["token", "--user", "u", "--scope", "x"], "--scope must be", "gateway token [--config"),
            ("dispatcher", ["enqueue", "--user", "u", "--type", "x", "--data", "{"], "data: ", "dispatcher enqueue ["),
            ("dispatcher", ["dead", "replay"], "give a number, a filter", "dispatcher dead replay ["),
            ("dispatcher", ["simulate", "--user", "u", "--at", "noon"], "--at must be", "dispatcher simulate ["),
            ("dispatcher", ["trace", "no-id"], "no-id is no id", "dispatcher trace ["),
        ]
        for (program, arguments, message, usage) in table {
            let (text, code) = try await Self.refusal(program, arguments)
            let lines = text.split(separator: "\n")
            #expect(code == 64, "\(program) \(arguments): \(text)")
            #expect(lines.first?.hasPrefix("Error: ") == true && text.contains(message), "\(text)")
            #expect(lines.contains { $0.hasPrefix("Usage: \(usage)") }, "\(text)")
            let name = usage.split(separator: " ").prefix { $0.first?.isLetter == true }.joined(separator: " ")
            #expect(lines.last?.contains("See '\(name) --help'") == true, "\(text)")
        }
    }

    @Test("unreachable servers and unreadable files are reported without Swift types, files or lines")
    func plainMessages() async throws {
        let directory = try TemporaryDirectory("plain")
        let catalog = directory.file("catalog.yaml")
        try Data("types: {offer: {severity: info}}".utf8).write(to: URL(filePath: catalog))
        let stores = [
            "CATALOG": catalog, "REDIS_URL": "redis://127.0.0.1:1", "DATABASE_URL": "postgresql://x@127.0.0.1:1/x",
            "AUTH_JWT_SECRET": String(repeating: "s", count: 32),
        ]
        let table: [(String, [String], [String: String], String)] = [
            ("dispatcher", ["lag"], [:], "redis unavailable: no connection: Connection refused; see REDIS_URL"),
            ("gateway", ["migrate"], [:], "postgres unavailable: connection to server at"),
            ("gateway", ["serve"], ["GATEWAY_TLS_CERT": catalog, "GATEWAY_TLS_KEY": catalog], "no certificate in PEM"),
        ]
        for (program, arguments, environment, words) in table {
            let (text, code) = try await Self.refusal(program, arguments, stores.merging(environment) { $1 })
            #expect(code == 69 || code == 78, "\(text)")
            #expect(text.contains(words), "\(text)")
            let ours = text.matches(of: #/\.swift:|\.cc:|errno|Error\(|Failure\(|\[[A-Z]\w+:/#)
            #expect(ours.isEmpty, "\(text)")
        }
    }
}
