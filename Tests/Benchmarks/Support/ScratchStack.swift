// Carillon · ScratchStack.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation

/// Services of a benchmark's own on databases of its own, so that it may kill and measure them alone.
///
/// They take all other settings from the environment, as `deploy/up` wrote them.
final class ScratchStack: Sendable {
    let database: ScratchDatabase
    let redis: ScratchRedis
    let folder: String
    private let programs: ProgramOptions

    private init(_ database: ScratchDatabase, _ redis: ScratchRedis, folder: String, programs: ProgramOptions) {
        self.database = database
        self.redis = redis
        self.folder = folder
        self.programs = programs
    }

    /// Runs `body` with fresh databases, which go when it ends, as the programs do that it started.
    static func use(
        _ programs: ProgramOptions,
        _ body: (ScratchStack) async throws -> Void
    ) async throws {
        let folder = try TemporaryFolder()
        let database = try await ScratchDatabase.make()
        var failure: (any Error)?
        do {
            let redis = try await ScratchRedis.make()
            do {
                let stack = ScratchStack(database, redis, folder: folder.path, programs: programs)
                try await body(stack)
            } catch {
                failure = error
            }
            try await redis.drop()
        } catch {
            failure = failure ?? error
        }
        try await database.drop()
        if let failure { throw failure }
    }

    /// Starts a gateway; gives it with its port.
    ///
    /// - Parameters:
    ///   - core: where all of its threads run; anywhere if nil.
    ///   - port: 0 takes any.
    ///   - settings: more of its variables.
    func gateway(
        log: String = "gateway",
        core: Int? = nil,
        port: Int = 0,
        settings: [String: String] = [:]
    ) async throws -> (program: ChildProgram, port: Int) {
        let listener = ["GATEWAY_PORT": "\(port)", "GATEWAY_HOST": "127.0.0.1"]
        let program = try await ChildProgram(
            self.programs.gatewayPath,
            ["serve"],
            core: core,
            environment: self.variables.merging(listener) { $1 }.merging(settings) { $1 },
            logFile: "\(self.folder)/\(log).log"
        )
        return (program, try await Self.port(of: program))
    }

    /// Starts one of this program's own servers, which a gateway is compared with; gives it with its port.
    func bareServer(_ arguments: [String], core: Int? = nil) async throws -> (program: ChildProgram, port: Int) {
        let program = try await ChildProgram(
            ProgramOptions.ownPath,
            arguments,
            core: core,
            environment: self.variables,
            logFile: "\(self.folder)/bare.log"
        )
        return (program, try await Self.port(of: program))
    }

    private static func port(of program: ChildProgram) async throws -> Int {
        let line = try await program.line("ready ")
        guard let port = URL(string: String(line.dropFirst("ready ".count)))?.port else {
            throw ValidationError("\(program.name) told no port")
        }
        return port
    }

    /// Starts a dispatcher.
    ///
    /// - Parameter settings: more of its variables.
    func dispatcher(log: String = "dispatcher", settings: [String: String] = [:]) async throws -> ChildProgram {
        try await ChildProgram(
            self.programs.dispatcherPath,
            ["run"],
            environment: self.variables.merging(["METRICS_PORT": "0"]) { $1 }.merging(settings) { $1 },
            logFile: "\(self.folder)/\(log).log"
        )
    }

    var sandboxPath: String { self.programs.sandboxPath }

    private var variables: [String: String] { ["REDIS_URL": self.redis.url, "DATABASE_URL": self.database.url] }
}

/// Which programs a benchmark starts.
struct ProgramOptions: ParsableArguments {
    @Option(help: "The gateway's program; the one beside this program if not given.")
    var gateway: String?

    @Option(help: "The dispatcher's program; the one beside this program if not given.")
    var dispatcher: String?

    @Option(help: "The provider sandbox's program; the one beside this program if not given.")
    var sandbox: String?

    private static func beside(_ name: String) -> String {
        URL(fileURLWithPath: self.ownPath).deletingLastPathComponent().appendingPathComponent(name).path
    }

    /// This program's file.
    static var ownPath: String {
        (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
    }

    var gatewayPath: String { self.gateway ?? Self.beside("gateway") }
    var sandboxPath: String { self.sandbox ?? Self.beside("provider-sandbox") }
    var dispatcherPath: String { self.dispatcher ?? Self.beside("dispatcher") }
}
