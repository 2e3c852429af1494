// Carillon · Expectations.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

// Untyped throws, because the expectation macros do not accept typed ones.
extension PostgresPool {
    /// Returns the first row's only column, a number.
    func number(_ sql: String, _ parameters: PostgresValue..., timeout: Duration? = nil) async throws -> Int64? {
        let results = try await self.run([PostgresStatement(sql, parameters)], timeout: timeout)
        return try results.first?.first?.int8(0)
    }

    /// Returns the error of a statement; nil if it succeeds.
    func failure(of sql: String, _ parameters: PostgresValue..., timeout: Duration? = nil) async -> PostgresError? {
        await self.failure(of: [PostgresStatement(sql, parameters)], timeout: timeout)
    }

    /// Returns the error of statements; nil if they succeed.
    func failure(of statements: [PostgresStatement], timeout: Duration? = nil) async -> PostgresError? {
        do throws(PostgresError) {
            try await self.run(statements, timeout: timeout)
            return nil
        } catch {
            return error
        }
    }
}

extension RedisClient {
    /// Returns a command's reply as text.
    func text(_ arguments: RedisArgument..., timeout: Duration? = nil) async throws -> String? {
        try await self.send(arguments, timeout: timeout).string()
    }

    /// Returns a command's reply as an integer.
    func number(_ arguments: RedisArgument...) async throws -> Int64 {
        try await self.send(arguments).integer()
    }

    /// Returns the outcome of a batch of ECHO commands.
    func outcome(of words: [String], timeout: Duration) async -> Result<[String], RedisError> {
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

    /// Returns the error of a command; nil if it succeeds.
    func failure(of arguments: RedisArgument..., timeout: Duration? = nil) async -> RedisError? {
        do throws(RedisError) {
            try await self.send(arguments, timeout: timeout)
            return nil
        } catch {
            return error
        }
    }
}
