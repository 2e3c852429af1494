// Carillon · Shutdown.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import ServiceLifecycle

/// Waits for the next round of a polling service; a shutdown or a cancellation ends the wait.
func pause(for duration: Duration) async {
    // Each caller says why it polls.
    await cancelWhenGracefulShutdown { try? await Task.sleep(for: duration) }
}

/// Runs `work`, which repeats blocking commands on a connection while ``isRunning`` holds.
///
/// A shutdown or a cancellation ends the command that blocks.
///
/// - Parameter others: a connection to the same Redis for commands that do not block.
/// - Throws: what `work` throws.
func interruptible(
    _ reader: RedisClient,
    through others: RedisClient,
    _ work: @escaping @Sendable () async throws -> Void
) async throws {
    try await withThrowingTaskGroup(of: Bool.self) { group in
        group.addTask {
            try await work()
            return true
        }
        group.addTask {
            // Until the shutdown.
            while isRunning { await pause(for: .seconds(3_600)) }
            return false
        }
        while try await group.next() == false {
            // Unblock again until the work ends, because its next command may be about to begin.
            await reader.unblock(through: others)
            group.addTask {
                // In a task of its own, because a cancelled task does not sleep.
                _ = await Task { try? await Task.sleep(for: .milliseconds(50)) }.value
                return false
            }
        }
        group.cancelAll()
    }
}

/// Whether a polling service continues: false on shutdown, or when another service has failed.
var isRunning: Bool { !Task.isShuttingDownGracefully && !Task.isCancelled }
