// Carillon · EmailMessage.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A notification as a whole message: header, and the text both plain and as HTML (RFC 5322, RFC 2045, RFC 2046).
///
/// The same notification makes the same message at any try, but for its date.
package struct EmailMessage: Sendable {
    /// Why there is no message.
    package struct Fault: Error, Sendable, Equatable, CustomStringConvertible {
        package let description: String

        package init(_ description: String) {
            self.description = description
        }
    }

    /// The envelope's addresses.
    package let sender: String
    package let recipient: String
    /// With CRLF at each line's end; dots are not stuffed.
    package let content: [UInt8]

    /// - Parameters:
    ///   - recipient: the user's address.
    ///   - unsubscribe: the URL at which one click stops such mail (RFC 8058); nil for none.
    /// - Throws: ``Fault`` if the address or a field cannot be sent.
    package init(
        _ message: PushMessage,
        from sender: EmailSender,
        to recipient: String,
        unsubscribe: String?
    ) throws(Fault) {
        guard let address = EmailAddress(recipient) else { throw Fault("bad_address") }
        let notification = message.notification
        let text = EmailText(notification, unsubscribe: unsubscribe)
        let boundary = "=_\(notification.id)"
        var header = EmailHeader()
        do {
            try header.add("From", sender.name, sender.address)
            try header.add("To", nil, address)
            if let replyTo = text.replyTo { try header.add("Reply-To", nil, replyTo) }
            try header.add("Subject", text: text.subject)
            try header.add("Date", EmailDate.text(message.now))
            try header.add("Message-ID", "<\(notification.id)@\(sender.address.domain)>")
            if let unsubscribe {
                try header.add("List-Unsubscribe", "<\(unsubscribe)>")
                try header.add("List-Unsubscribe-Post", "List-Unsubscribe=One-Click")
            }
            // Nobody's absence notice is an answer to this (RFC 3834).
            try header.add("Auto-Submitted", "auto-generated")
            try header.add("Feedback-ID", Self.feedbackID(notification))
            try header.add("MIME-Version", "1.0")
            try header.add("Content-Type", "multipart/alternative; boundary=\"\(boundary)\"")
        } catch {
            throw Fault("bad_field:\(error.field)")
        }
        header.end()
        var content = header.bytes
        // The last one that a program understands is the one it shows.
        for (type, part) in [("plain", text.text), ("html", text.html)] {
            content += "--\(boundary)\r\n".utf8
            content += "Content-Type: text/\(type); charset=utf-8\r\n".utf8
            content += "Content-Transfer-Encoding: quoted-printable\r\n\r\n".utf8
            content += QuotedPrintable.encode(part)
        }
        content += "--\(boundary)--\r\n".utf8
        self.sender = sender.address.description
        self.recipient = address.description
        self.content = content
    }

    /// By what complaints are counted where mailbox providers tell them: type, category, organisation and who sends.
    private static func feedbackID(_ notification: Notification) -> String {
        let parts = [notification.type, notification.category ?? "", notification.org].map { part in
            let safe = part.utf8.prefix(64).map { byte in
                let isSafe = (byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x7A || byte >= 0x30 && byte <= 0x39
                return isSafe || byte == UInt8(ascii: "_") || byte == UInt8(ascii: ".") ? byte : UInt8(ascii: "-")
            }
            return safe.isEmpty ? "none" : String(decoding: safe, as: UTF8.self)
        }
        return (parts + ["carillon"]).joined(separator: ":")
    }
}
