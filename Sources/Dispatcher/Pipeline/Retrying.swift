// Carillon · Retrying.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Logging

extension Dispatcher {
    /// Repeats `work` until it succeeds or the task is cancelled.
    ///
    /// The input of such steps stays pending in a stream, so there is nothing better to do than
    /// retry.
    func retrying<Value>(
        _ what: StaticString,
        isFinal: (any Error) -> Bool = { _ in false },
        _ work: () async throws -> Value
    ) async throws -> Value {
        let backoff = Backoff(base: .milliseconds(50), limit: .seconds(2))
        var attempt = 0
        while true {
            do {
                return try await work()
            } catch {
                if isFinal(error) || Task.isCancelled { throw error }
                if attempt == 0 {
                    self.logger.warning(
                        "step failed; retrying",
                        metadata: ["step": "\(what)", "error": "\(error)"]
                    )
                }
            }
            // A store does not signal that it is back. With jitter, so that dispatchers that failed
            // together do not retry together.
            try await Task.sleep(for: backoff.delay(attempt: attempt))
            attempt += 1
        }
    }

    /// Repeats `work`, and `wait` after each round, until a shutdown or a cancellation.
    ///
    /// - Parameters:
    ///   - failure: the warning about the first of several failed rounds.
    ///   - metadata: facts of the warning besides the error.
    func untilShutdown(
        _ failure: Logger.Message,
        metadata: Logger.Metadata = [:],
        _ work: () async throws -> Void,
        wait: () async -> Void
    ) async {
        var isFailing = false
        while isRunning {
            do {
                try await work()
                isFailing = false
            } catch {
                if !isFailing {
                    self.logger.warning(failure, metadata: metadata.merging(["error": "\(error)"]) { $1 })
                }
                isFailing = true
            }
            await wait()
        }
    }
}
