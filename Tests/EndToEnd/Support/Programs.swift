// Carillon · Programs.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import Support
import Synchronization
import Testing

/// Tests that cannot run on this machine.
enum Skips {
    /// Whether a skip is a failure: in continuous integration, one in a green run goes unnoticed.
    static let areFailures = ProcessInfo.processInfo.environment["CI"] == "true"
    private static let reasons = Mutex<Set<String>>([])

    /// The reasons so far, if a skip is a failure.
    static var all: [String] { Self.reasons.withLock { $0.sorted() } }

    /// Reports on standard error why tests are skipped; records an issue if that is a failure.
    static func note(_ reason: String) {
        FileHandle.standardError.write(Data("SKIPPED: \(reason)\n".utf8))
        guard Self.areFailures else { return }
        Self.reasons.withLock { _ = $0.insert(reason) }
        // Traits are evaluated before any test runs, when this is lost: `SkipTests` reports those.
        Issue.record("skipped: \(reason)")
    }
}

/// Programs of this machine that some tests need.
enum Commands {
    /// The path of a program in `PATH`, or nil.
    static func find(_ name: String) -> String? {
        let folders = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":")
        return folders.map { "\($0)/\(name)" }.first { FileManager.default.isExecutableFile(atPath: $0) }
    }

    /// Whether all programs are installed; reports each missing one.
    static func have(_ names: String...) -> Bool {
        let missing = names.filter { self.find($0) == nil }
        for name in missing { Skips.note("\(name) is not installed; tests that need it are skipped") }
        return missing.isEmpty
    }

    /// Whether Node is installed and has WebSockets; reports if not.
    static func haveNodeWithSockets() -> Bool {
        guard self.have("node") else { return false }
        if let node = self.find("node"), self.succeeds(node, ["--experimental-websocket", "-e", "0"]) { return true }
        Skips.note("node is too old for the documentation's programs; install version 20.10 or newer")
        return false
    }

    /// Whether a program runs and ends with exit code 0.
    fileprivate static func succeeds(_ path: String, _ arguments: [String]) -> Bool {
        (try? Spawn.run(path, arguments))?.exit == .code(0)
    }
}

extension Browser {
    /// Whether the browser and its driver are installed; reports what is missing.
    static let isInstalled = Commands.have("chromium", "chromedriver")
}

/// A Python client from `Tests/Programs`, read by its output.
///
/// `CARILLON_TEST_PYTHON` names the interpreter; without it, `python3` from `PATH`.
final class PythonClient: Sendable {
    private static let started = Atomic<Int>(0)
    let process: ChildProcess

    private init(_ process: ChildProcess) {
        self.process = process
    }

    static var interpreter: String {
        ProcessInfo.processInfo.environment["CARILLON_TEST_PYTHON"] ?? Commands.find("python3") ?? "python3"
    }

    /// Whether a module can be imported; reports a missing one.
    static func has(_ module: String) -> Bool {
        if Commands.succeeds(Self.interpreter, ["-c", "import \(module)"]) { return true }
        Self.skip("has no module \(module)")
        return false
    }

    /// A file inside an installed package, importable or not; reports a missing one and returns
    /// nil.
    static func file(_ package: String, _ path: String) -> String? {
        let script = "import importlib.util as u; print(u.find_spec('\(package)').submodule_search_locations[0])"
        if let found = try? Spawn.run(Self.interpreter, ["-c", script]), found.exit == .code(0) {
            let file = found.output.trimmingCharacters(in: .whitespacesAndNewlines) + "/" + path
            if FileManager.default.isReadableFile(atPath: file) { return file }
        }
        Self.skip("has no \(path) of \(package)")
        return nil
    }

    private static func skip(_ reason: String) {
        Skips.note("\(Self.interpreter) \(reason); set CARILLON_TEST_PYTHON to one that has it")
    }

    /// Starts a script of `Tests/Programs`.
    static func start(_ script: String, _ arguments: [String], in directory: String) async throws -> PythonClient {
        let path = Stack.checkout.appending(path: "Tests/Programs/\(script)").path
        return PythonClient(
            try await ChildProcess.spawn(
                Self.interpreter, [path] + arguments,
                name: "python-\(Self.started.wrappingAdd(1, ordering: .relaxed).newValue)",
                environment: ["PYTHONUNBUFFERED": "1"],
                directory: directory))
    }

    var lines: [String] { self.process.output().split(separator: "\n").map { String($0) } }

    func wait(for prefix: String) async throws -> String { try await self.process.waitForLine(prefix) }

    /// The arguments of the received events of a name, in order.
    func events(_ name: String) -> [JSONValue] {
        let prefix = "event \(name) "
        return self.lines.filter { $0.hasPrefix(prefix) }.compactMap { line in
            try? JSONParser.parse(Array(line.utf8.dropFirst(prefix.utf8.count)))
        }
    }

    /// The titles of the received notifications, in order.
    var titles: [String] { self.events("notification").compactMap { $0["title"]?.string } }

    /// Waits for the acknowledgement of an emitted event.
    func answer(_ name: String) async throws -> JSONValue {
        let line = try await self.wait(for: "ack \(name) ")
        return try JSONParser.parse(Array(line.utf8.dropFirst("ack \(name) ".utf8.count)))
    }
}

extension Stack {
    /// Runs a command with the stack's settings, and returns its exit code and output.
    func command(
        _ arguments: [String],
        environment: [String: String] = [:],
        program: String = "dispatcher"
    ) async throws -> (code: Int32, output: String, errors: String) {
        let process = try await self.spawn(
            program, arguments, name: "command-\(UUID().uuidString.prefix(8))", environment: environment)
        guard case .code(let code) = try await process.waitForExit() else {
            throw FixtureError("\(arguments) ended by a signal")
        }
        return (code, process.output(), process.errors())
    }
}
