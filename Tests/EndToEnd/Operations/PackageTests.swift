// Carillon · PackageTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support
import Testing

@testable import Clients

/// The packages of `clients`: their own tests, their programs against a real stack, and their quick
/// starts with the package installed from its artefact.
@Suite(.timeLimit(.minutes(10)))
struct PackageTests {
    /// A package and the commands that try it.
    struct Package: Sendable, CustomTestStringConvertible {
        let name: String
        /// The programs and Python modules that it needs.
        var commands: [String] = []
        var modules: [String] = []
        /// Files of Python packages that it needs, each with the variable that names it.
        var files: [(variable: String, package: String, path: String)] = []
        /// Runs its tests, in its folder.
        let tests: String
        /// Runs its program against a stack, in its folder.
        let program: String
        /// Installs the artefact in an empty folder, in which the quick start is then run.
        let install: String
        let file: String
        let language: String
        let run: String
        /// Lines that the quick start prints.
        let prints: [String]

        var testDescription: String { self.name }
    }

    private static let accepted = ["accepted in lane critical", "type is not in the catalog"]

    private static let packages = [
        Package(
            name: "python", modules: ["redis", "websockets", "flit_core"],
            tests: "$PYTHON -W error -m unittest discover tests", program: "$PYTHON tests/stack.py",
            install: """
                $PYTHON -m pip install --quiet --no-deps --no-build-isolation --target "$PWD/packages" \
                    "$CLIENTS/python"
                """,
            file: "quick_start.py", language: "python", run: "PYTHONPATH=$PWD/packages $PYTHON quick_start.py",
            prints: ["Payment received: € 40 from Ben"]),
        Package(
            name: "javascript", commands: ["node", "npm"], tests: "node --test", program: "node stack.mjs",
            install: "npm pack --silent \"$CLIENTS/javascript\" && npm install --silent ./carillon-*.tgz",
            file: "main.mjs", language: "js", run: "node main.mjs", prints: Self.accepted),
        Package(
            name: "web", commands: ["node", "npm", "chromium", "chromedriver"],
            files: [("REACT", "dash", "deps/react@18.3.1.js"), ("VUE", "nicegui", "static/vue.esm-browser.js")],
            tests: "node --test", program: "REACT=${REACT%/*} node stack.mjs",
            install: "npm pack --silent \"$CLIENTS/web\" && npm install --silent ./carillon-web-*.tgz",
            file: "index.html", language: "html", run: "node \"$CLIENTS/web/stack.mjs\" index.html",
            prints: ["1 unread"]),
        Package(
            name: "go", commands: ["go"], tests: "go vet ./... && go test ./...", program: "go run ./stack",
            install: """
                go mod init notify
                go mod edit -require=carillon@v0.0.0 "-replace=carillon=$CLIENTS/go"
                """,
            file: "main.go", language: "go", run: "go run .", prints: Self.accepted),
    ]

    @Test("passes its own tests, runs against a stack, and its quick start works once installed", arguments: packages)
    func package(_ package: Package) async throws {
        guard package.commands.allSatisfy({ Commands.have($0) }), package.modules.allSatisfy({ PythonClient.has($0) })
        else { return }
        let files = package.files.map { (variable: $0.variable, path: PythonClient.file($0.package, $0.path)) }
        guard files.allSatisfy({ $0.path != nil }) else { return }
        let clients = Stack.checkout.appending(path: "clients").path
        let folder = "\(clients)/\(package.name)"
        try await Stack.with { stack in
            // The quick starts follow `deploy/up`, which has this catalog.
            let catalog = Stack.checkout.appending(path: "deploy/catalog.d").path
            let bench = try await Workbench.open(stack, settings: ["CATALOG": catalog, "ALLOWED_ORIGINS": "*"])
            let exports = files.map { "export \($0.variable)='\($0.path ?? "")'" }.joined(separator: "\n")
            let setup =
                exports + """

                    export PYTHON='\(PythonClient.interpreter)' CLIENTS='\(clients)' PYTHONDONTWRITEBYTECODE=1
                    export GOFLAGS=-mod=mod GOCACHE="${TMPDIR:-/tmp}/go" npm_config_cache="${TMPDIR:-/tmp}/npm"

                    """
            let tests = try await bench.run(setup + package.tests, in: folder)
            #expect(tests.exit == .code(0), "\(tests.output)")
            let program = try await bench.run(setup + package.program, in: folder)
            #expect(program.exit == .code(0), "\(program.output)")
            #expect(!program.output.contains("skipped"), "\(program.output)")

            let clean = stack.directory.file("clean")
            try FileManager.default.createDirectory(atPath: clean, withIntermediateDirectories: true)
            let text = try Stack.text("clients/\(package.name)/README.md")
            let snippet = try #require(try Snippet.all(of: text).first { $0.language == Self.name(package.language) })
            try Data(snippet.text.utf8).write(to: URL(filePath: "\(clean)/\(package.file)"))
            let start = try await bench.run(setup + package.install + "\n" + package.run, in: clean)
            #expect(start.exit == .code(0), "\(start.output)")
            for line in package.prints { #expect(start.output.contains(line), "\(start.output)") }
        }
    }

    @Test("the Swift library runs against a stack")
    func swift() async throws {
        try await Stack.with { stack in
            let catalog = Stack.checkout.appending(path: "deploy/catalog.d").path
            let bench = try await Workbench.open(stack, settings: ["CATALOG": catalog])
            let program = try await bench.run("\"$CARILLON_BIN/ClientStack\"", in: Stack.checkout.path)
            #expect(program.exit == .code(0), "\(program.output)")
            #expect(program.output.hasSuffix("done\n"), "\(program.output)")
        }
    }

    private static func name(_ language: String) -> String { language == "js" ? "javascript" : language }
}

/// Tests that could not run.
@Suite(.timeLimit(.minutes(10)))
struct SkipTests {
    @Test("no test is skipped in continuous integration", .enabled(if: Skips.areFailures))
    func none() {
        #expect(Skips.all.isEmpty)
    }
}
