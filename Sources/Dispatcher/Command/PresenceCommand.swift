// Carillon · PresenceCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core
import Operations
import Storage

/// `dispatcher presence`.
struct PresenceCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "presence",
        abstract: "Shows which sockets of users are open, and on which gateways.",
        discussion: """
            Needs REDIS_URL. Exits with 1 if none of the users is online.

            Examples:
              dispatcher presence u1
              dispatcher presence u1 u2 --json
            """
    )

    /// The most users that are looked up at once.
    private static let mostUsers = 1_000

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Argument(help: "The users' ids.")
    var users: [String]

    func validate() throws {
        guard self.users.count <= Self.mostUsers else { throw ValidationError("give at most \(Self.mostUsers) users") }
    }

    func run() async throws {
        try await DispatcherCommand.run {
            let reader = try self.options.reader()
            let redis = CommandClients.redis(reader, name: "presence")
            try reader.finish()
            let found = try await CommandClients.withRedis(redis) { connection in
                try await PresenceRegistry(try await Live.installed(on: connection)).lookUp(self.users)
            }
            let presences = Array(zip(self.users, found))
            if self.output.json { Self.write(presences) } else { Self.show(presences) }
            guard found.contains(where: { !$0.connections.isEmpty }) else { throw ExitStatus.no }
        }
    }

    private static func show(_ presences: [(String, Presence)]) {
        var table = Table([
            .text("USER", isCuttable: true), .text("STATE"), .text("DIALECT"), .text("GATEWAY"), .text("SINCE"),
        ])
        for (user, presence) in presences {
            if presence.connections.isEmpty { table.add([user, "offline", "", "", ""]) }
            for connection in presence.connections {
                table.add([
                    user, connection.state.rawValue, connection.dialect.rawValue, connection.node,
                    connection.since.rfc3339,
                ])
            }
        }
        table.show()
    }

    private static func write(_ presences: [(String, Presence)]) {
        for (user, presence) in presences {
            Terminal.object { writer in
                writer.member("user_id", user)
                Presence.onlineShape.writeMembers(of: presence, to: &writer)
                Presence.connectionsShape.writeMembers(of: presence, to: &writer)
            }
        }
    }
}
