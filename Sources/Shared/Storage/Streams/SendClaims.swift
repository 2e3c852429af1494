// Carillon · SendClaims.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Which stream entry a notification is being sent to a device for, by whichever dispatcher.
///
/// The same delivery may stand in the streams twice, because whoever appended it did not know whether the first had
/// arrived. The record of attempts tells them apart only when one of them is on it; until then the claim does. A claim
/// counts as long as its entry is in its stream, so that whoever takes the entry over has the claim too, and none outlives
/// the work that it is for.
package struct SendClaims: Sendable {
    /// Only against claims that nobody gave back: longer than any entry is worked on.
    private static let span: Duration = .seconds(3_600)

    let live: Live

    /// Claims deliveries for the entries of one stream that they come from; doing it again changes nothing.
    ///
    /// - Returns: for each whether it may be sent; one that may not is another entry's, which is not settled yet.
    package func take(
        _ claims: [(work: DeliveryWork, entry: String)],
        provider: Provider,
        lane: Lane
    ) async throws(RedisError) -> [Bool] {
        var isTaken = [Bool](repeating: true, count: claims.count)
        guard !claims.isEmpty else { return isTaken }
        let streams = Lane.allCases.map { RedisArgument.text(self.live.keys.deliveries(provider, $0)) }
        let reply = try await self.live.connection.run(
            StreamScripts.claimSends,
            keys: streams + claims.map { .text(self.live.keys.sendClaim($0.work, provider)) },
            arguments: [.integer(Int64(lane.rank + 1)), .integer(Self.span.inMicroseconds / 1_000)]
                + claims.map { .text($0.entry) }
        )
        guard var cursor = try reply.cursor(), let refused = try cursor.array() else { return isTaken }
        for _ in 0..<refused {
            let position = Int(try cursor.integer()) - 1
            if isTaken.indices.contains(position) { isTaken[position] = false }
        }
        return isTaken
    }

    /// Adds the end of claims to a batch; a claim that is another entry's stays.
    package func giveBack(
        _ claims: [(work: DeliveryWork, entry: String, lane: Lane)],
        provider: Provider,
        in batch: inout RedisBatch
    ) {
        guard !claims.isEmpty else { return }
        batch.append(
            StreamScripts.endSends,
            keys: claims.map { .text(self.live.keys.sendClaim($0.work, provider)) },
            arguments: claims.map { .text("\($0.lane.rank + 1):\($0.entry)") }
        )
    }
}
