// Carillon · SignalRDialect.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Protocols

/// The words of the notification hub: which client methods say what, and which methods clients may call.
enum SignalRDialect {
    private static let maximumIDs = 1_000

    // MARK: To clients

    static func received(_ json: [UInt8]) -> SignalRRecord {
        SignalRRecord(target: "ReceiveNotification", encodedArguments: [json])
    }

    static func unreadCount(_ count: Int32) -> SignalRRecord {
        SignalRRecord(target: "UnreadCountChanged", encodedArguments: [Array(String(count).utf8)])
    }

    static func read(_ id: String) -> SignalRRecord {
        SignalRRecord(target: "NotificationRead", encodedArguments: [Self.text(id)])
    }

    static func deleted(_ id: String) -> SignalRRecord {
        SignalRRecord(target: "NotificationDeleted", encodedArguments: [Self.text(id)])
    }

    private static func text(_ text: String) -> [UInt8] { JSONWriter.bytes(of: .string(text)) }

    /// A change of the inbox, or an event.
    static func change(_ change: NodeChange) -> [SignalRRecord] {
        let unread = Self.unreadCount(change.unread)
        switch change.kind {
        case .notification: return [Self.received(change.body.camelCase), unread]
        case .read:
            return (Self.ids(change)?.map { Self.read($0) } ?? [Self.all("AllNotificationsRead", change)]) + [unread]
        case .deleted:
            return (Self.ids(change)?.map { Self.deleted($0) } ?? [Self.all("AllReadNotificationsDeleted", change)])
                + [unread]
        case .event:
            guard let event = try? JSONParser.parse(change.body.canonical), let name = event["name"]?.string else {
                return []
            }
            let arguments = event["args"]?.array ?? []
            return [
                SignalRRecord(target: name, encodedArguments: arguments.map { JSONWriter.bytes(of: $0) })
            ]
        }
    }

    /// The ids that a change names; nil if it is about all up to its version.
    private static func ids(_ change: NodeChange) -> [String]? {
        (try? JSONParser.parse(change.body.canonical))?["ids"]?.strings
    }

    /// A change of more notifications than it names: of all that the client got before.
    private static func all(_ target: String, _ change: NodeChange) -> SignalRRecord {
        SignalRRecord(target: target, encodedArguments: [Array(String(change.version).utf8)])
    }

    /// What brings a client up to date.
    ///
    /// - Parameters:
    ///   - isFirst: Clients fetch their inbox over REST, so that the first one tells only what was
    ///     missed.
    ///   - told: The version up to which the client was told everything on this connection.
    static func sync(_ snapshot: InboxSnapshot, isFirst: Bool, after told: Int64 = 0) -> [SignalRRecord] {
        var records: [SignalRRecord] = []
        if isFirst, !snapshot.isReturn {
            // The newest come first, and a client shows the last one on top.
            records = snapshot.items.reversed().filter(\.awaitsProof).map { Self.received($0.json) }
        } else if snapshot.isReset {
            records = snapshot.items.reversed().filter { !$0.isRead && $0.version > told }
                .map { Self.received($0.json) }
        } else {
            records = snapshot.items.map { $0.isRead ? Self.read($0.id.description) : Self.received($0.json) }
            records += snapshot.deleted.map { Self.deleted($0.id.description) }
        }
        return records + [Self.unreadCount(snapshot.unread)]
    }

    // MARK: From clients

    /// What a call asks for; nil for one that asks for nothing.
    ///
    /// - Throws: ``ClientFault``, whose reason is the completion's error.
    static func message(_ invocation: SignalRInvocation) throws(ClientFault) -> ClientMessage? {
        let method = ["MarkAsRead", "MarkRead", "MarkAllAsRead", "GetUnreadCount", "Subscribe"]
            .first { invocation.calls($0) }
        guard let method else { throw Self.fault(SignalRErrorText.unknownMethod(invocation.target)) }
        guard !invocation.isStream else { throw Self.fault(SignalRErrorText.plainMethodStreamed(invocation.target)) }
        switch method {
        case "MarkAsRead", "MarkRead":
            let argument = invocation.arguments.first
            let texts = argument?.strings ?? argument?.string.map { [$0] } ?? []
            let ids = texts.compactMap { NotificationID($0) }
            guard !ids.isEmpty, ids.count == texts.count, ids.count <= Self.maximumIDs else {
                throw Self.fault(
                    SignalRErrorText.failed(
                        invocation.target,
                        "the first argument must be a notification id, or an array of at most \(Self.maximumIDs)"
                    )
                )
            }
            return .read(ids: ids)
        case "MarkAllAsRead": return .read(ids: nil)
        case "GetUnreadCount": return .unread
        default: return nil
        }
    }

    private static func fault(_ reason: String) -> ClientFault { ClientFault(reason: reason, reference: nil) }

    /// The completion that an answer is.
    static func outcome(_ answer: SocketAnswer, target: String) -> SignalRCompletion.Outcome {
        switch answer {
        case .done: .void
        case .read(let unread), .unread(let unread): .result(.number(String(unread)))
        case .error(let reason), .busy(let reason): .error(SignalRErrorText.failed(target, reason))
        }
    }
}
