// Carillon · CommandFrame.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Glibc

/// The frame around every command of both programs.
package enum CommandFrame {
    /// This release: the newest version of the changelog, or the next one with `-dev`.
    package static let version = "1.0.0-dev"

    /// Parses the command line and runs a program.
    ///
    /// Prints the usage of the subcommand after a usage error.
    package static func main(_ program: (some AsyncParsableCommand).Type) async {
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
                let (message, parent) = UnknownCommand.message(arguments, of: program)
            {
                Self.refuse(message, usage: program.usageString(for: parent))
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
        } catch let error as RedisError {
            Terminal.error("\(program): \(error); see REDIS_URL")
            throw Self.status(error)
        } catch let error as PostgresError {
            Terminal.error("\(program): \(error); see DATABASE_URL")
            throw Self.status(error)
        }
    }

    /// Handles signals until the program's services do, which start after PostgreSQL has answered.
    ///
    /// SIGTERM and SIGINT end the program: as process 1 of a container it would ignore them. SIGHUP
    /// asks to read files again and may come early.
    package static func handleEarlySignals() {
        signal(SIGHUP, SIG_IGN)
        // Sound in a signal handler: `_exit` is async-signal-safe.
        for number in [SIGTERM, SIGINT] { signal(number) { _ in _exit(EXIT_SUCCESS) } }
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

/// An unknown subcommand on the command line, and the one that was probably meant.
private enum UnknownCommand {
    /// The most edits of a typing error.
    private static let mostEdits = 2

    /// Returns the message for the first unknown subcommand, and the command it was given to.
    ///
    /// - Parameter arguments: the command line without the program's name.
    /// - Returns: nil if every subcommand is known.
    static func message(
        _ arguments: [String],
        of program: any ParsableCommand.Type
    ) -> (message: String, parent: any ParsableCommand.Type)? {
        var parent = program
        for word in arguments {
            let subcommands = parent.configuration.subcommands
            guard !subcommands.isEmpty, !word.hasPrefix("-") else { return nil }
            if let next = subcommands.first(where: { Self.name($0) == word }) {
                parent = next
                continue
            }
            guard word != "help" else { return nil }
            let names = subcommands.map { Self.name($0) }
            let hint = Self.nearest(to: word, of: names).map { "Did you mean '\($0)'?" }
            return ("Unknown command '\(word)'. " + (hint ?? "Known are \(names.joined(separator: ", "))."), parent)
        }
        return nil
    }

    private static func name(_ command: any ParsableCommand.Type) -> String {
        command.configuration.commandName ?? "\(command)".lowercased()
    }

    /// Returns the name that starts with `word`, otherwise the closest one; nil if none is close.
    private static func nearest(to word: String, of names: [String]) -> String? {
        if word.count > 1, let name = names.first(where: { $0.hasPrefix(word) }) { return name }
        let distances = names.map { (name: $0, edits: Self.edits($0, word)) }
        return distances.filter { $0.edits <= Self.mostEdits && $0.edits < $0.name.count - 1 }
            .min { $0.edits < $1.edits }?.name
    }

    /// Returns the Damerau-Levenshtein distance (optimal string alignment).
    private static func edits(_ one: String, _ other: String) -> Int {
        let (one, other) = (Array(one), Array(other))
        var before: [Int] = []
        var last = Array(0...other.count)
        for (row, letter) in one.enumerated() {
            var next = [row + 1]
            for (column, another) in other.enumerated() {
                var least = min(last[column] + (letter == another ? 0 : 1), last[column + 1] + 1, next[column] + 1)
                if row > 0, column > 0, letter == other[column - 1], another == one[row - 1] {
                    least = min(least, before[column - 1] + 1)
                }
                next.append(least)
            }
            (before, last) = (last, next)
        }
        return last[other.count]
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
