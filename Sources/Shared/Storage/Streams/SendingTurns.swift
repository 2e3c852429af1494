// Carillon · SendingTurns.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// A provider's rate for one account, shared by all dispatchers and by the account's apps.
package struct SendingTurns: Sendable {
    let live: Live

    /// Takes turns to send, as many as there are.
    ///
    /// - Parameter perSecond: the account's rate, which all who take turns of it must say alike: it is what the bucket's level is
    ///   counted by.
    /// - Returns: how many were taken, and in how many milliseconds there is another.
    package func take(
        _ count: Int,
        provider: Provider,
        account: String,
        perSecond: Int
    ) async throws(RedisError) -> (taken: Int, wait: Int64) {
        let reply = try await self.live.connection.run(
            StreamScripts.takeTurns,
            keys: [.text(self.live.keys.bucket("send", "\(provider.rawValue):\(account)"))],
            arguments: [.integer(Int64(perSecond)), .integer(Int64(max(1, perSecond / 4))), .integer(Int64(count))]
        )
        guard var cursor = try reply.cursor(), try cursor.array() != nil else { return (0, 1_000) }
        return (Int(try cursor.integer()), try cursor.integer())
    }
}
