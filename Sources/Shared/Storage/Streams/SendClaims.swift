// Carillon · SendClaims.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Claims of stream entries on deliveries, so that dispatchers send no delivery twice.
///
/// A delivery can be in the streams twice, because an append may arrive although it seemed to
/// fail. Until the attempt of the first entry is stored, only that entry's claim stops the second.
/// A claim holds as long as its entry is in the stream, also for a dispatcher that takes the entry
/// over.
package struct SendClaims: Sendable {
    /// The lifetime of a claim that is never released; longer than an outage of PostgreSQL may
    /// delay the outcome of an entry.
    private static let span: Duration = .seconds(7 * 24 * 3_600)

    let live: Live

    /// Claims deliveries for entries of one stream.
    ///
    /// Repeating a claim changes nothing.
    ///
    /// - Returns: whether each may be sent; if not, another unsettled entry has the claim.
    package func claim(
        _ claims: [(work: DeliveryWork, entry: String)],
        provider: Provider,
        lane: Lane
    ) async throws(RedisError) -> [Bool] {
        var isTaken = [Bool](repeating: true, count: claims.count)
        guard !claims.isEmpty else { return isTaken }
        let streams = Lane.allCases.map { RedisArgument.text(self.live.keys.deliveries(provider, $0)) }
        let reply = try await self.live.connection.run(
            StreamScripts.claimSends,
            keys: streams + self.live.keys.sendClaims(claims.lazy.map(\.work), provider).map { .bytes($0) },
            arguments: [.integer(Int64(lane.rank + 1)), .integer(Self.span.inMilliseconds)]
                + claims.map { .text($0.entry) }
        )
        guard var cursor = try reply.cursor(), let refused = try cursor.array() else { return isTaken }
        for _ in 0..<refused {
            let position = Int(try cursor.integer()) - 1
            if isTaken.indices.contains(position) { isTaken[position] = false }
        }
        return isTaken
    }

    /// Adds the release of claims to a batch; claims of other entries stay.
    package func release(
        _ claims: [(work: DeliveryWork, entry: String, lane: Lane)],
        provider: Provider,
        in batch: inout RedisBatch
    ) {
        guard !claims.isEmpty else { return }
        batch.append(
            StreamScripts.endSends,
            keys: self.live.keys.sendClaims(claims.lazy.map(\.work), provider).map { .bytes($0) },
            arguments: claims.map { .text("\($0.lane.rank + 1):\($0.entry)") }
        )
    }
}
