// Carillon · DeliveryWork.swift
// SPDX-License-Identifier: Apache-2.0

package import Model

/// One notification to be sent to one device.
///
/// What to send is read from PostgreSQL when its turn comes.
///
/// Its text is both the stream entry's only field and the member of the retry set:
/// `1 <notification> <device> <attempt> <flags> <user>`, where 1 is the format's number and flags are `-` or letters: `r` for
/// a repeat, `a` for one that calls for attention.
package struct DeliveryWork: Sendable, Equatable {
    package static let field = "d"

    package let notification: NotificationID
    package let device: NotificationID
    package let user: String
    /// How many tries there were.
    package let attempt: Int
    /// Whether it may have been sent before, so that the record of attempts decides.
    package let isRepeat: Bool
    /// Whether it goes to a user who has the notification on a socket and has not read it.
    package let callsForAttention: Bool

    package init(
        notification: NotificationID,
        device: NotificationID,
        user: String,
        attempt: Int,
        isRepeat: Bool,
        callsForAttention: Bool = false
    ) {
        self.notification = notification
        self.device = device
        self.user = user
        self.attempt = attempt
        self.isRepeat = isRepeat
        self.callsForAttention = callsForAttention
    }

    /// The same after one more try, to be checked against the record of attempts: it may stand in the stream a second time,
    /// or have arrived although nobody said so.
    package var afterTry: DeliveryWork {
        DeliveryWork(
            notification: self.notification,
            device: self.device,
            user: self.user,
            attempt: self.attempt + 1,
            isRepeat: true,
            callsForAttention: self.callsForAttention
        )
    }

    /// The same, to be checked against the record of attempts.
    package var asRepeat: DeliveryWork {
        DeliveryWork(
            notification: self.notification,
            device: self.device,
            user: self.user,
            attempt: self.attempt,
            isRepeat: true,
            callsForAttention: self.callsForAttention
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
        let flags = (self.isRepeat ? "r" : "") + (self.callsForAttention ? "a" : "")
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
        let parts = String(decoding: Array(bytes), as: UTF8.self)
            .split(separator: " ", maxSplits: 5, omittingEmptySubsequences: false)
        guard let format = parts.first.flatMap({ Int($0) }) else { throw .malformed }
        guard format == 1 else { throw .newerFormat }
        guard parts.count == 6, let notification = NotificationID(parts[1]), let device = NotificationID(parts[2]),
            let attempt = Int(parts[3])
        else { throw .malformed }
        self.init(
            notification: notification,
            device: device,
            user: String(parts[5]),
            attempt: attempt,
            isRepeat: parts[4].utf8.contains(UInt8(ascii: "r")),
            callsForAttention: parts[4].utf8.contains(UInt8(ascii: "a"))
        )
    }
}
