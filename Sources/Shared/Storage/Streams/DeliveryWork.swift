// Carillon · DeliveryWork.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// One notification to send to one device.
///
/// Its content is read from PostgreSQL when it is sent. The text is the only field of a stream
/// entry and the member of retry and held sets: `1 <notification> <device> <attempt> <flags>
/// <user>`. 1 is the format. Flags are `-` or letters: `r` for a repeat, `a` for an attention call,
/// `u` for each unknown outcome, `x` for a retraction. The letters are followed by the time, in
/// milliseconds, since which the delivery has waited, if it has waited before.
package struct DeliveryWork: Sendable, Equatable {
    package static let field = "d"
    /// A text with this many attempts or more is malformed.
    private static let mostAttempts = Int(Int32.max)

    package let notification: NotificationID
    package let device: DeviceID
    package let user: String
    /// The number of earlier attempts.
    package private(set) var attempt: Int
    /// Whether it may have been sent before; the stored attempts then decide whether to send it.
    package private(set) var isRepeat: Bool
    /// Whether it alerts a user who got the notification on a socket but has not read it.
    package let callsForAttention: Bool
    /// The number of earlier attempts that had no answer, but whose message may have arrived.
    package private(set) var unknowns: Int
    /// Whether it removes the notification from the device, as it was read elsewhere.
    package let isRetraction: Bool
    /// When it was first appended to a stream; nil until it waits for a retry or is held back.
    package private(set) var since: Timestamp?

    /// The key of its notification.
    package var key: NotificationKey { NotificationKey(user: self.user, id: self.notification) }

    /// Whether it comes from a retry or held set.
    package var hasWaited: Bool { self.since != nil }

    package init(
        notification: NotificationID,
        device: DeviceID,
        user: String,
        attempt: Int,
        isRepeat: Bool,
        callsForAttention: Bool = false,
        unknowns: Int = 0,
        isRetraction: Bool = false,
        since: Timestamp? = nil
    ) {
        self.notification = notification
        self.device = device
        self.user = user
        self.attempt = attempt
        self.isRepeat = isRepeat
        self.callsForAttention = callsForAttention
        self.unknowns = unknowns
        self.isRetraction = isRetraction
        self.since = since
    }

    /// The same delivery after an attempt, as a repeat: it may be in the stream twice or have
    /// arrived without an answer.
    package var afterTry: DeliveryWork {
        var work = self.asRepeat
        work.attempt += 1
        return work
    }

    /// The same delivery after an attempt with an unknown outcome.
    package var afterUnknown: DeliveryWork {
        var work = self.afterTry
        work.unknowns += 1
        return work
    }

    /// The same delivery as a repeat.
    package var asRepeat: DeliveryWork {
        var work = self
        work.isRepeat = true
        return work
    }

    /// The same delivery for a retry or held set.
    ///
    /// It has waited since `entry` was appended unless it has waited before.
    package func waiting(since entry: StreamEntry) -> DeliveryWork {
        var work = self
        work.since = self.since ?? entry.appendedAt
        return work
    }

    /// The same delivery as a repeat without earlier attempts.
    package var fromTheStart: DeliveryWork {
        var work = self.asRepeat
        work.attempt = 0
        work.unknowns = 0
        work.since = nil
        return work
    }

    /// The text of an entry or a member.
    package var bytes: [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(128 + self.user.utf8.count)
        bytes += "1 ".utf8
        self.notification.append(to: &bytes)
        bytes += " ".utf8
        self.device.append(to: &bytes)
        bytes += " \(self.attempt) ".utf8
        let start = bytes.count
        if self.isRepeat { bytes += "r".utf8 }
        if self.callsForAttention { bytes += "a".utf8 }
        bytes += repeatElement(UInt8(ascii: "u"), count: self.unknowns)
        if self.isRetraction { bytes += "x".utf8 }
        if let since { bytes += "\(since.milliseconds)".utf8 }
        if bytes.count == start { bytes += "-".utf8 }
        bytes += " ".utf8
        bytes += self.user.utf8
        return bytes
    }

    /// An invalid text.
    package enum Fault: Error, Sendable, Equatable {
        /// Written by a newer release, which must read it.
        case newerFormat
        case malformed
    }

    /// Reads the text of an entry or a member.
    package init(_ bytes: some Sequence<UInt8>) throws(Fault) {
        var rest = Array(bytes)[...]
        guard let format = Int(String(decoding: rest.prefix { $0 != UInt8(ascii: " ") }, as: UTF8.self)) else {
            throw .malformed
        }
        guard format == 1 else { throw .newerFormat }
        guard rest.takeField() != nil, let notification = rest.takeField().flatMap({ NotificationID(utf8: $0) }),
            let device = rest.takeField().flatMap({ NotificationID(utf8: $0) }),
            let attempt = rest.takeField().flatMap({ Int(String(decoding: $0, as: UTF8.self)) }),
            (0..<Self.mostAttempts).contains(attempt), let flags = rest.takeField(),
            // PostgreSQL would refuse the lookup of such a user.
            !rest.contains(0)
        else { throw .malformed }
        self.init(
            notification: notification,
            device: device,
            user: String(decoding: rest, as: UTF8.self),
            attempt: attempt,
            isRepeat: flags.contains(UInt8(ascii: "r")),
            callsForAttention: flags.contains(UInt8(ascii: "a")),
            unknowns: flags.count { $0 == UInt8(ascii: "u") },
            isRetraction: flags.contains(UInt8(ascii: "x")),
            since: Self.moment(flags)
        )
    }

    /// The time in the digits at the end of the flags.
    private static func moment(_ flags: some Collection<UInt8>) -> Timestamp? {
        let digits = flags.drop { !(UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
        // Longer numbers are not times and would overflow as microseconds.
        guard digits.count <= 14, let milliseconds = Int64(String(decoding: digits, as: UTF8.self)) else { return nil }
        return Timestamp(milliseconds: milliseconds)
    }
}

extension ArraySlice<UInt8> {
    /// Removes the text before the next space, and that space, and returns the text; nil if there
    /// is no space.
    mutating func takeField() -> ArraySlice<UInt8>? {
        guard let space = self.firstIndex(of: UInt8(ascii: " ")) else { return nil }
        defer { self = self[(space + 1)...] }
        return self[..<space]
    }
}

extension RedisBatch {
    /// Adds an `XADD` of a delivery to a stream of deliveries.
    package mutating func append(_ work: DeliveryWork, to stream: String) {
        self.append("XADD", .text(stream), "*", .text(DeliveryWork.field), .bytes(work.bytes))
    }
}
