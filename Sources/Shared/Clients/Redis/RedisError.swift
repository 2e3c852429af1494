// Carillon · RedisError.swift
// SPDX-License-Identifier: Apache-2.0

/// The failure of a Redis call.
///
/// Holds at most the server's message, never a key, an argument or a password.
package struct RedisError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The kind of failure, which also tells whether the command may have run.
    package enum Code: String, Sendable {
        /// No connection before the deadline, or a server that cannot serve now; the command did
        /// not run.
        case unavailable
        /// Sent, but no reply before the deadline; the command may have run.
        case timeout
        /// The connection broke after sending; the command may have run.
        case connectionLost
        /// Too many commands wait; the command was not sent.
        case overloaded
        /// The client was closed; the command was not sent.
        case closed
        /// The command ran, but too few replicas had its write in time; it is lost if the master
        /// dies before they have it.
        case notReplicated
        /// Redis answered with an error.
        case server
        /// The reply has another form than the command promises.
        case unexpectedReply
        /// The bytes are not RESP.
        case malformedReply
        /// The address or the credentials are unusable.
        case configuration
    }

    package let code: Code
    /// The server's or the network's message.
    package let message: String?

    package init(_ code: Code, _ message: String? = nil) {
        self.code = code
        self.message = message
    }

    /// Answers of a server that cannot run a command now, such as a replica, or one that loads data
    /// or is busy with a script.
    private static let unavailable: Set<Substring> = [
        "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "NOREPLICAS", "READONLY", "TRYAGAIN", "UNBLOCKED",
    ]

    /// Creates the error that a server answered.
    init(reply message: String) {
        var message = message
        // Redis 6.2 puts the script and the line before an error inside a script.
        if message.hasPrefix("ERR Error running script"), let prefix = message.firstRange(of: ": -"),
            message[prefix.upperBound...].first?.isUppercase == true
        {
            message = String(message[prefix.upperBound...])
        }
        let word = message.prefix { $0 != " " }
        self.init(Self.unavailable.contains(word) ? .unavailable : .server, message)
    }

    /// Whether a replica refused a write.
    var isOfReplica: Bool { self.code == .unavailable && self.message?.hasPrefix("READONLY") == true }

    /// Whether a server answered that its cluster is down.
    var isOfDownCluster: Bool { self.code == .unavailable && self.message?.hasPrefix("CLUSTERDOWN") == true }

    /// Whether the server could not be reached or could not serve, as a master that is away.
    package var isOfAbsentServer: Bool {
        self.code == .unavailable || self.code == .timeout || self.code == .connectionLost
    }

    /// Whether the command may have run all the same.
    package var mayHaveRun: Bool {
        self.code == .timeout || self.code == .connectionLost || self.code == .notReplicated
    }

    /// The first word of a server error, such as `NOSCRIPT` or `NOGROUP`.
    package var serverCode: Substring? {
        guard self.code == .server, let message else { return nil }
        return message.prefix { $0 != " " }
    }

    /// Whether a server refused a write at its memory limit; it still answers reads.
    package var isOutOfMemory: Bool { self.serverCode == "OOM" }

    package var description: String {
        "redis \(self.code.rawValue)" + (self.message.map { ": \($0)" } ?? "")
    }
}
