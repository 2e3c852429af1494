// Carillon · SendingPauses.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Until when nothing is sent by a provider's accounts, whichever dispatcher was asked to wait: a hash a provider, with a field
/// an account, which ends with the last of them.
package struct SendingPauses: Sendable {
    /// Until when one account is left alone.
    package struct Pause: Sendable, Equatable {
        package let provider: Provider
        /// What the provider counts messages by.
        package let account: String
        /// Which of the provider's services; nil where it is one.
        package let service: String?
        package let until: Timestamp

        package init(provider: Provider, account: String, service: String? = nil, until: Timestamp) {
            self.provider = provider
            self.account = account
            self.service = service
            self.until = until
        }
    }

    let live: Live

    /// Tells of pauses, of which a later one that is known stays, and hears which there are, in one round trip.
    ///
    /// - Parameter providers: those whose pauses are asked for.
    /// - Returns: what is not over.
    package func exchange(
        _ told: [Pause],
        of providers: [Provider],
        now: Timestamp
    ) async throws(RedisError) -> [Pause] {
        var batch = RedisBatch()
        for pause in told {
            batch.append(
                StreamScripts.keepPause,
                keys: [.text(self.live.keys.pauses(pause.provider))],
                arguments: [
                    .text(Self.field(pause)), .integer(pause.until.milliseconds), .integer(now.milliseconds),
                ]
            )
        }
        for provider in providers { batch.append("HGETALL", .text(self.live.keys.pauses(provider))) }
        guard !batch.isEmpty else { return [] }
        let replies = try await self.live.connection.send(batch)
        for reply in replies.prefix(told.count) { _ = try reply.checked() }
        var pauses: [Pause] = []
        for (provider, reply) in zip(providers, replies.dropFirst(told.count)) {
            let fields = try reply.strings()
            for index in stride(from: 0, to: fields.count - 1, by: 2) {
                guard let pause = Self.pause(provider, fields[index], fields[index + 1]), pause.until > now else {
                    continue
                }
                pauses.append(pause)
            }
        }
        return pauses
    }

    /// The service first, which has no spaces; an account may.
    private static func field(_ pause: Pause) -> String { "\(pause.service ?? "-") \(pause.account)" }

    private static func pause(_ provider: Provider, _ field: String, _ moment: String) -> Pause? {
        let parts = field.split(separator: " ", maxSplits: 1)
        guard parts.count == 2, let milliseconds = Int64(moment) else { return nil }
        return Pause(
            provider: provider,
            account: String(parts[1]),
            service: parts[0] == "-" ? nil : String(parts[0]),
            until: Timestamp(milliseconds: milliseconds)
        )
    }
}
