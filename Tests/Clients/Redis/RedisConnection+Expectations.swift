// Carillon · RedisConnection+Expectations.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

// Untyped throws, as the macros of expectations do not take typed ones.
extension RedisConnection {
    /// A command's reply as text.
    nonisolated func text(_ arguments: RedisArgument..., timeout: Duration? = nil) async throws -> String? {
        try await self.send(arguments, timeout: timeout).string()
    }

    /// A command's reply as an integer.
    nonisolated func number(_ arguments: RedisArgument...) async throws -> Int64 {
        try await self.send(arguments).integer()
    }

    /// What a batch of ECHO comes to.
    nonisolated func outcome(of words: [String], timeout: Duration) async -> Result<[String], RedisError> {
        var batch = RedisBatch()
        for word in words { batch.append("ECHO", .text(word)) }
        do throws(RedisError) {
            var echoes: [String] = []
            for reply in try await self.send(batch, timeout: timeout) { echoes.append(try reply.string() ?? "") }
            return .success(echoes)
        } catch {
            return .failure(error)
        }
    }

    /// The error that a command ends with; nil if it succeeds.
    nonisolated func failure(of arguments: RedisArgument..., timeout: Duration? = nil) async -> RedisError? {
        do throws(RedisError) {
            try await self.send(arguments, timeout: timeout)
            return nil
        } catch {
            return error
        }
    }
}
