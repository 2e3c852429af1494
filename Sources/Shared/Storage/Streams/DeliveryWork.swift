// Carillon · DeliveryWork.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// One notification to be sent to one device.
///
/// What to send is read from PostgreSQL when its turn comes.
///
/// Its text is both the stream entry's only field and the member of the retry set, or of what was held back:
/// `1 <notification> <device> <attempt> <flags> <user>`, where 1 is the format's number and flags are `-` or letters: `r` for
/// a repeat, `a` for one that calls for attention, `u` for one whose outcome was unknown before, `x` for one that takes the
/// notification off the device. Behind the letters stands, in milliseconds, since when it has been
/// waiting, if it was set aside before.
package struct DeliveryWork: Sendable, Equatable {
    package static let field = "d"
    /// No delivery is tried this often; one that says so is malformed.
    private static let mostAttempts = Int(Int32.max)

    package let notification: NotificationID
    package let device: NotificationID
    package let user: String
    /// How many tries there were.
    package let attempt: Int
    /// Whether it may have been sent before, so that the record of attempts decides.
    package let isRepeat: Bool
    /// Whether it goes to a user who has the notification on a socket and has not read it.
    package let callsForAttention: Bool
    /// Whether the provider gave no answer before although it may have the message.
    package let wasUnknown: Bool
    /// Whether it takes the notification off the device, as it was read elsewhere.
    package let isRetraction: Bool
    /// When it was first appended to a stream; nil until it is set aside for a later try.
    package let since: Timestamp?

    package init(
        notification: NotificationID,
        device: NotificationID,
        user: String,
        attempt: Int,
        isRepeat: Bool,
        callsForAttention: Bool = false,
        wasUnknown: Bool = false,
        isRetraction: Bool = false,
        since: Timestamp? = nil
    ) {
        self.notification = notification
        self.device = device
        self.user = user
        self.attempt = attempt
        self.isRepeat = isRepeat
        self.callsForAttention = callsForAttention
        self.wasUnknown = wasUnknown
        self.isRetraction = isRetraction
        self.since = since
    }

    /// The same after one more try, to be checked against the record of attempts: it may stand in the stream a second time,
    /// or have arrived although nobody said so.
    package var afterTry: DeliveryWork { self.again(attempt: self.attempt + 1, wasUnknown: self.wasUnknown) }

    /// The same after a try whose outcome nobody knows.
    package var afterUnknown: DeliveryWork { self.again(attempt: self.attempt + 1, wasUnknown: true) }

    /// The same, to be checked against the record of attempts.
    package var asRepeat: DeliveryWork { self.again(attempt: self.attempt, wasUnknown: self.wasUnknown) }

    /// The same, to be set aside; it has waited since an entry was appended, unless it was set
    /// aside before.
    package func waiting(since entry: StreamEntry) -> DeliveryWork {
        self.again(
            attempt: self.attempt, wasUnknown: self.wasUnknown, isRepeat: self.isRepeat,
            since: self.since ?? entry.appendedAt)
    }

    private func again(
        attempt: Int,
        wasUnknown: Bool,
        isRepeat: Bool = true,
        since: Timestamp? = nil
    ) -> DeliveryWork {
        DeliveryWork(
            notification: self.notification,
            device: self.device,
            user: self.user,
            attempt: attempt,
            isRepeat: isRepeat,
            callsForAttention: self.callsForAttention,
            wasUnknown: wasUnknown,
            isRetraction: self.isRetraction,
            since: since ?? self.since
        )
    }

    /// The same as if it had not been tried, to be checked against the record of attempts.
    package var fromTheStart: DeliveryWork {
        DeliveryWork(
            notification: self.notification,
            device: self.device,
            user: self.user,
            attempt: 0,
            isRepeat: true
        )
    }

    package var text: String {
        let flags =
            (self.isRepeat ? "r" : "") + (self.callsForAttention ? "a" : "") + (self.wasUnknown ? "u" : "")
            + (self.isRetraction ? "x" : "") + (self.since.map { "\($0.milliseconds)" } ?? "")
        return "1 \(self.notification) \(self.device) \(self.attempt) \(flags.isEmpty ? "-" : flags) \(self.user)"
    }

    /// How a text can fail to be work.
    package enum Fault: Error, Sendable, Equatable {
        /// A newer program wrote it; it is left for one.
        case newerFormat
        case malformed
    }

    /// Reads the text of an entry or a member.
    package init(_ bytes: some Sequence<UInt8>) throws(Fault) {
        let parts = Array(bytes)
            .split(separator: UInt8(ascii: " "), maxSplits: 5, omittingEmptySubsequences: false)
        guard let format = parts.first.flatMap({ Int(String(decoding: $0, as: UTF8.self)) }) else { throw .malformed }
        guard format == 1 else { throw .newerFormat }
        guard parts.count == 6, let notification = NotificationID(utf8: parts[1]),
            let device = NotificationID(utf8: parts[2]), let attempt = Int(String(decoding: parts[3], as: UTF8.self)),
            (0..<Self.mostAttempts).contains(attempt)
        else { throw .malformed }
        self.init(
            notification: notification,
            device: device,
            user: String(decoding: parts[5], as: UTF8.self),
            attempt: attempt,
            isRepeat: parts[4].contains(UInt8(ascii: "r")),
            callsForAttention: parts[4].contains(UInt8(ascii: "a")),
            wasUnknown: parts[4].contains(UInt8(ascii: "u")),
            isRetraction: parts[4].contains(UInt8(ascii: "x")),
            since: Self.moment(parts[4])
        )
    }

    /// The digits at the end of the flags.
    private static func moment(_ flags: some Collection<UInt8>) -> Timestamp? {
        let digits = flags.drop { !(UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
        // Longer numbers are no time, and would overflow as microseconds.
        guard digits.count <= 14, let milliseconds = Int64(String(decoding: digits, as: UTF8.self)) else { return nil }
        return Timestamp(milliseconds: milliseconds)
    }
}

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
