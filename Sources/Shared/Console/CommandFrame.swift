// Carillon · CommandFrame.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Glibc
import Postgres
import Redis
import Settings
import Telemetry

/// What every command of both programs does around its work.
package enum CommandFrame {
    /// Runs a command's work; what ends it early becomes a line on standard error and an exit code.
    ///
    /// - Parameter program: its name, which begins the line.
    package static func run(_ program: String, _ work: () async throws -> Void) async throws {
        // A peer that is gone shows as an error of the write, not as a signal.
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

    private static func status(_ error: RedisError) -> ExitCode {
        switch error.code {
        case .configuration: ExitStatus.configuration
        case .server, .unexpectedReply, .malformedReply: ExitStatus.no
        case .unavailable, .timeout, .connectionLost, .overloaded, .closed: ExitStatus.unavailable
        }
    }

    private static func status(_ error: PostgresError) -> ExitCode {
        switch error.code {
        case .server, .decoding: ExitStatus.no
        case .unavailable, .timeout, .connectionLost, .overloaded, .cancelled, .closed: ExitStatus.unavailable
        }
    }
}
