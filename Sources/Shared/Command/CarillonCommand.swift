// Carillon · CarillonCommand.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc

/// The program `carillon`: both programs under a name that collides with no other on a machine.
///
/// It replaces itself with the program that has the command, from the same folder.
@main
enum CarillonCommand {
    private static let programs = ["gateway", "dispatcher"]
    /// The commands of the gateway alone; all others are the dispatcher's.
    private static let gatewayCommands: Set = ["serve", "migrate", "token", "import", "openapi"]
    private static let usage = """
        Usage: carillon gateway|dispatcher COMMAND [OPTIONS]
               carillon COMMAND [OPTIONS]

        Runs a command of Carillon's two programs. Without a program's name it runs the
        gateway's serve, migrate, token, import and openapi, or else the dispatcher's.

        Examples:
          carillon gateway serve
          carillon dispatcher run
          carillon dispatcher doctor
          carillon trace order-17
          carillon token --user u1

        See 'carillon gateway --help' and 'carillon dispatcher --help'.
        """

    static func main() {
        let arguments = Array(CommandLine.arguments.dropFirst())
        switch arguments.first {
        case nil: Self.end(with: Self.usage, status: EX_USAGE, to: STDERR_FILENO)
        case "--help", "-h", "help": Self.end(with: Self.usage, status: EXIT_SUCCESS, to: STDOUT_FILENO)
        case "--version": Self.become("gateway", ["--version"])
        case "doctor":
            let choice = "Error: both have a doctor; run 'carillon gateway doctor' or 'carillon dispatcher doctor'."
            Self.end(with: choice, status: EX_USAGE, to: STDERR_FILENO)
        case let name? where Self.programs.contains(name): Self.become(name, Array(arguments.dropFirst()))
        case let name?: Self.become(Self.gatewayCommands.contains(name) ? "gateway" : "dispatcher", arguments)
        }
    }

    /// Replaces this process by a program of its own folder.
    private static func become(_ program: String, _ arguments: [String]) -> Never {
        var buffer = [UInt8](repeating: 0, count: Int(PATH_MAX))
        let length = readlink("/proc/self/exe", &buffer, buffer.count)
        let own = String(decoding: buffer.prefix(max(0, length)), as: UTF8.self)
        let path = (own.lastIndex(of: "/").map { String(own[...$0]) } ?? "") + program
        var pointers = ([path] + arguments).map { strdup($0) } + [nil]
        execv(path, &pointers)
        let reason = String(cString: strerror(errno))
        Self.end(with: "carillon: cannot run \(path): \(reason)", status: EX_UNAVAILABLE, to: STDERR_FILENO)
    }

    private static func end(with text: String, status: Int32, to descriptor: Int32) -> Never {
        let line = Array((text + "\n").utf8)
        _ = write(descriptor, line, line.count)
        exit(status)
    }
}
