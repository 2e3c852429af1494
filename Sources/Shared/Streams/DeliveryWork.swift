// Carillon · DeliveryWork.swift
// SPDX-License-Identifier: Apache-2.0

package import Model

/// One notification to be sent to one device.
///
/// What to send is read from PostgreSQL when its turn comes.
///
/// Its text is both the stream entry's only field and the member of the retry set:
/// `1 <notification> <device> <attempt> <flags> <user>`, where 1 is the format's number and flags are `r` or `-`.
package struct DeliveryWork: Sendable, Equatable {
    package static let field = "d"

    package let notification: NotificationID
    package let device: NotificationID
    package let user: String
    /// How many tries there were.
    package let attempt: Int
    /// Whether it may have been sent before, so that the record of attempts decides.
    package let isRepeat: Bool

    package init(notification: NotificationID, device: NotificationID, user: String, attempt: Int, isRepeat: Bool) {
        self.notification = notification
        self.device = device
        self.user = user
        self.attempt = attempt
        self.isRepeat = isRepeat
    }

    /// The same after one more try.
    ///
    /// - Parameter mayHaveArrived: whether the provider may have it although it did not say so.
    package func afterTry(mayHaveArrived: Bool) -> DeliveryWork {
        DeliveryWork(
            notification: self.notification,
            device: self.device,
            user: self.user,
            attempt: self.attempt + 1,
            isRepeat: self.isRepeat || mayHaveArrived
        )
    }

    /// The same, to be checked against the record of attempts.
    package var asRepeat: DeliveryWork {
        DeliveryWork(
            notification: self.notification,
            device: self.device,
            user: self.user,
            attempt: self.attempt,
            isRepeat: true
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
        "1 \(self.notification) \(self.device) \(self.attempt) \(self.isRepeat ? "r" : "-") \(self.user)"
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
            isRepeat: parts[4] == "r"
        )
    }
}
