// Carillon · CommandFrame.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Glibc
import Logging
import NIOCore
import ServiceLifecycle
import UnixSignals

/// Runs the commands of both programs: parsing, error lines, exit codes and signals.
package enum CommandFrame {
    /// Parses the command line and runs a program.
    ///
    /// Prints the usage of the subcommand after a usage error.
    ///
    /// - Parameter other: the other program and its commands, to suggest for an unknown command.
    package static func main(
        _ program: (some AsyncParsableCommand).Type,
        other: (name: String, commands: [String])
    ) async {
        Self.endOnSignals()
        let arguments = Array(CommandLine.arguments.dropFirst())
        do {
            var command = try await program.asyncParseAsRoot(arguments)
            do {
                if var command = command as? any AsyncParsableCommand {
                    try await command.run()
                } else {
                    try command.run()
                }
            } catch let error as ValidationError {
                Self.refuse(error.message, usage: program.usageString(for: type(of: command)))
            }
        } catch {
            if program.exitCode(for: error) == .validationFailure,
                let (message, command) = UnknownWord.message(arguments, of: program, other: other)
            {
                Self.refuse(message, usage: program.usageString(for: command))
            }
            program.exit(withError: error)
        }
    }

    /// Exits with a usage error in the argument parser's format.
    private static func refuse(_ message: String, usage: String) -> Never {
        let name = usage.split(separator: " ").prefix { !["<", "[", "-"].contains($0.prefix(1)) }
            .joined(separator: " ")
        Terminal.error("Error: \(message)\nUsage: \(usage)\n  See '\(name) --help' for more information.")
        exit(ExitStatus.usage.rawValue)
    }

    /// Runs a command's work; prints an error on standard error and throws its exit code.
    ///
    /// - Parameter program: its name, which begins the error line.
    package static func run(_ program: String, _ work: () async throws -> Void) async throws {
        // A closed peer must show as a write error, not as a signal.
        signal(SIGPIPE, SIG_IGN)
        do {
            try await work()
        } catch let faults as SettingsFaults {
            Terminal.error("\(program): \(faults)")
            throw ExitStatus.configuration
        } catch let failure as CommandFailure {
            Terminal.error("\(program): \(failure)")
            throw failure.status
        } catch let fault as ListenFault {
            // Not a faulty configuration: supervisors must try again, because the port may become
            // free.
            Terminal.error("\(program): \(fault)")
            throw ExitStatus.no
        } catch let error as RedisError {
            Terminal.error("\(program): \(error); see REDIS_URL")
            throw Self.status(error)
        } catch let error as PostgresError {
            Terminal.error("\(program): \(error); see DATABASE_URL")
            throw Self.status(error)
        }
    }

    /// Handles signals until the program's services do; they start only after PostgreSQL has
    /// answered.
    ///
    /// SIGTERM and SIGINT exit; as process 1 of a container, the program would otherwise ignore
    /// them. SIGHUP asks for a reload and may come early, so it is ignored.
    package static func handleEarlySignals() {
        signal(SIGHUP, SIG_IGN)
        // Sound in a signal handler: `_exit` is async-signal-safe.
        for number in [SIGTERM, SIGINT] { signal(number) { _ in _exit(EXIT_SUCCESS) } }
    }

    /// Makes SIGTERM and SIGINT end a command that is process 1 of a container, which would
    /// otherwise ignore them.
    ///
    /// Its work is unfinished, so it exits with the code that a shell gives. Elsewhere the signal
    /// ends it, so that a script around it ends too. Services replace this by
    /// ``handleEarlySignals()``.
    private static func endOnSignals() {
        guard getpid() == 1 else { return }
        // Sound in a signal handler: `_exit` is async-signal-safe.
        for number in [SIGTERM, SIGINT] { signal(number) { _exit(128 + $0) } }
    }

    private static func status(_ error: RedisError) -> ExitCode {
        switch error.code {
        case .configuration: ExitStatus.configuration
        case .server, .unexpectedReply, .malformedReply: ExitStatus.no
        case .unavailable, .timeout, .connectionLost, .notReplicated, .overloaded, .closed: ExitStatus.unavailable
        }
    }

    private static func status(_ error: PostgresError) -> ExitCode {
        switch error.code {
        case .server, .decoding: ExitStatus.no
        case .unavailable, .timeout, .connectionLost, .overloaded, .cancelled, .closed: ExitStatus.unavailable
        }
    }
}

/// Finds an unknown subcommand or option on the command line, and suggests a known one.
private enum UnknownWord {
    /// Returns the message for the first unknown word, and the command it was given to.
    ///
    /// - Parameters:
    ///   - arguments: the command line without the program's name.
    ///   - other: the other program with its own commands.
    /// - Returns: nil if every subcommand and every long option is known.
    static func message(
        _ arguments: [String],
        of program: any ParsableCommand.Type,
        other: (name: String, commands: [String])
    ) -> (message: String, command: any ParsableCommand.Type)? {
        var command = program
        for (index, word) in arguments.enumerated() {
            let subcommands = command.configuration.subcommands
            guard !subcommands.isEmpty, !word.hasPrefix("-") else {
                let leaf = command.configuration.defaultSubcommand ?? command
                return Self.option(arguments[index...], of: leaf, in: program).map { ($0, leaf) }
            }
            if let next = subcommands.first(where: { Self.name($0) == word }) {
                command = next
                continue
            }
            guard word != "help" else { return nil }
            let names = subcommands.map { Self.name($0) }
            let others = index == 0 ? other.commands : []
            let meant =
                Spelling.nearest(to: word, of: names)
                ?? Spelling.nearest(to: word, of: others).map { "\(other.name) \($0)" }
            let known = (names + others.map { "\(other.name) \($0)" }).joined(separator: ", ")
            let hint = meant.map { "Did you mean '\($0)'?" } ?? "Known are \(known)."
            return ("Unknown command '\(word)'. \(hint)", command)
        }
        return nil
    }

    /// Returns the message for the first unknown option of a command; nil if all are known.
    private static func option(
        _ words: ArraySlice<String>,
        of command: any ParsableCommand.Type,
        in program: any ParsableCommand.Type
    ) -> String? {
        // The parser lists a command's options only in its help, one a line, as `  -h, --help  …`.
        let help = program.helpMessage(for: command, includeHidden: true, columns: 1_000)
        let known = help.split(separator: "\n").compactMap { line -> String? in
            guard line.hasPrefix("  -") else { return nil }
            let name = line.split(separator: " ").first { $0.hasPrefix("--") }
            return name.map { String($0.dropFirst(2)) }
        }
        for word in words.prefix(while: { $0 != "--" }) where word.hasPrefix("--") {
            let name = String(word.dropFirst(2).prefix { $0 != "=" })
            // A value may begin with dashes, too; the parser's message says how to give it.
            guard !known.contains(name), name.wholeMatch(of: #/[A-Za-z][A-Za-z0-9-]*/#) != nil else { continue }
            let hint = Spelling.nearest(to: name, of: known).map { " Did you mean '--\($0)'?" }
            return "Unknown option '--\(name)'." + (hint ?? "")
        }
        return nil
    }

    private static func name(_ command: any ParsableCommand.Type) -> String {
        command.configuration.commandName ?? "\(command)".lowercased()
    }
}

/// Exit codes of commands, named as in sysexits.h; `docs/command-line.md` lists them.
package enum ExitStatus {
    /// The command ran, and its answer is no.
    package static let no = ExitCode.failure
    /// EX_USAGE: the options are malformed or exclude each other.
    static let usage = ExitCode(64)
    /// EX_DATAERR: the input is faulty.
    package static let data = ExitCode(65)
    /// EX_NOINPUT: an input file cannot be read.
    package static let noInput = ExitCode(66)
    /// EX_UNAVAILABLE: Redis, PostgreSQL or a dispatcher cannot be reached.
    package static let unavailable = ExitCode(69)
    /// EX_TEMPFAIL: a person must confirm first.
    package static let wait = ExitCode(75)
    /// EX_CONFIG: the configuration is faulty.
    static let configuration = ExitCode(78)
}

/// A command's failure, with its exit code and the line for standard error.
package struct CommandFailure: Error, CustomStringConvertible {
    let status: ExitCode
    package let description: String

    package init(_ status: ExitCode, _ description: String) {
        self.status = status
        self.description = description
    }
}

/// Why a service cannot listen on its address.
package struct ListenFault: Error, Sendable, CustomStringConvertible {
    package let description: String

    /// Names the setting at fault, the host's or the port's.
    ///
    /// Nil if `error` concerns neither.
    package init?(
        _ error: any Error,
        host: (setting: String, value: String),
        port: (setting: String, value: Int)
    ) {
        let isOfHost =
            error is SocketAddressError || error is SocketAddressError.UnknownHost
            || [EADDRNOTAVAIL, EAFNOSUPPORT].contains((error as? IOError)?.errnoCode)
        guard isOfHost || error is IOError else { return nil }
        let address = host.value.contains(":") ? "[\(host.value)]" : host.value
        let words = "cannot listen on \(address):\(port.value): \(NetworkFault.words(error))"
        self.description =
            isOfHost
            ? "\(host.setting): \(words); name an address of this machine, or 0.0.0.0 or :: for all"
            : "\(port.setting): \(words); choose another, or 0 for any"
    }
}

extension ServiceGroup {
    /// Runs a program's services until a signal or a failure.
    ///
    /// - Parameters:
    ///   - limit: how long the shutdown may take.
    ///   - host: the setting of the host on which a service listens.
    ///   - port: the setting of its port.
    /// - Throws: the error of a service; ``ListenFault`` if it cannot listen there.
    package static func run(
        _ services: [any Service],
        stopsWithin limit: Duration,
        host: (setting: String, value: String),
        port: (setting: String, value: Int),
        logger: Logger
    ) async throws {
        var configuration = ServiceGroupConfiguration(
            services: services.map { .init(service: $0) },
            gracefulShutdownSignals: [.sigterm, .sigint],
            logger: logger
        )
        configuration.maximumGracefulShutdownDuration = limit
        do {
            try await ServiceGroup(configuration: configuration).run()
        } catch {
            throw ListenFault(error, host: host, port: port) ?? error
        }
    }
}
