// Carillon · EmailMessage.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// A notification as a complete message: header, plain text and HTML (RFC 5322, RFC 2045, RFC
/// 2046).
///
/// Every attempt produces the same message except for its date.
struct EmailMessage: Sendable {
    /// The reason why there is no message.
    struct Fault: Error, Sendable, Equatable, CustomStringConvertible {
        let description: String

        init(_ description: String) {
            self.description = description
        }
    }

    /// The envelope's addresses.
    let sender: String
    let recipient: String
    /// CRLF line breaks, without dot-stuffing.
    let content: [UInt8]

    /// - Parameters:
    ///   - recipient: the user's address.
    ///   - unsubscribe: the one-click unsubscribe URL (RFC 8058); nil for none.
    /// - Throws: ``Fault`` if the address or a field is invalid.
    init(
        _ message: PushMessage,
        from sender: EmailSender,
        to recipient: String,
        unsubscribe: String?
    ) throws(Fault) {
        guard let address = EmailAddress(recipient) else { throw Fault("bad_address") }
        let notification = message.notification
        let words = MailTexts(languages: message.locale.map { [$0] } ?? [])
        let exit = unsubscribe.map { url in
            EmailExit(url: url, text: message.typeTitle.map(words.stopType) ?? words.unsubscribe)
        }
        let text = EmailText(notification, words, exit)
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
            // Suppresses automatic replies (RFC 3834).
            try header.add("Auto-Submitted", "auto-generated")
            try header.add("Feedback-ID", Self.feedbackID(notification))
            try header.add("MIME-Version", "1.0")
            try header.add("Content-Type", "multipart/alternative; boundary=\"\(boundary)\"")
        } catch {
            throw Fault("bad_field:\(error.field)")
        }
        header.end()
        var content = header.bytes
        // Mail programs show the last part that they support.
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

    /// Returns the key by which mailbox providers count complaints: type, category, organisation
    /// and sender.
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

/// The link with which a user stops such e-mail.
struct EmailExit: Sendable {
    let url: String
    /// In the user's language.
    let text: String
}

/// The texts of an e-mail, from the job or template, with the notification's own texts as fallback.
struct EmailText: Sendable, Equatable {
    var subject: String
    var text: String
    var html: String
    var replyTo: EmailAddress?

    /// - Parameter exit: nil for an e-mail that the user cannot refuse.
    init(_ notification: Notification, _ words: MailTexts, _ exit: EmailExit?) {
        let extras = notification.extras
        let parts = MailParts(
            type: notification.type, title: notification.title, body: notification.body, url: extras.url,
            platform: extras.platform)
        self.subject = parts.subject
        self.text = parts.text + (exit.map { "\n\n-- \n\($0.text): \($0.url)" } ?? "")
        self.html =
            parts.html
            ?? EmailLayout(
                title: notification.title, body: parts.body, link: parts.link, image: Self.image(notification),
                words: words, exit: exit
            ).html
        self.replyTo = parts.replyTo
    }

    private static func image(_ notification: Notification) -> String? {
        notification.extras.image.flatMap { $0.lowercased().hasPrefix("https://") ? $0 : nil }
    }
}

/// The HTML page for mail without a template: title, image, body, link button and unsubscribe link.
///
/// Uses tables and inline styles, since mail programs support little else.
struct EmailLayout {
    let title: String
    let body: String
    let link: String?
    let image: String?
    let words: MailTexts
    let exit: EmailExit?

    var html: String {
        var rows = ""
        if !self.title.isEmpty {
            let title = self.title.htmlEscaped
            rows += Self.row(#"<h1 dir="auto" style="margin:0;font-size:22px;line-height:30px">\#(title)</h1>"#)
        }
        if let image {
            rows += Self.row(
                #"<img src="\#(image.htmlEscaped)" alt="" width="520" style="display:block;width:100%;border-radius:8px">"#
            )
        }
        for paragraph in self.paragraphs {
            rows += Self.row(#"<p dir="auto" style="margin:0;font-size:16px;line-height:24px">\#(paragraph)</p>"#)
        }
        if let link {
            rows += Self.row(
                #"<a href="\#(link.htmlEscaped)" style="display:inline-block;padding:12px 24px;border-radius:8px;"#
                    + #"background:#1f4fd8;color:#ffffff;font-size:16px;text-decoration:none">"#
                    + "\(self.words.open)</a>"
            )
        }
        var foot = ""
        if let exit {
            foot = """
                <p lang="\(self.words.language)" dir="auto" \
                style="margin:16px 0;font-size:13px;line-height:20px;color:#5c6370">\
                <a href="\(exit.url.htmlEscaped)" style="color:#5c6370">\(exit.text.htmlEscaped)</a></p>

                """
        }
        return """
            <!DOCTYPE html>
            <html>
            <head>
            <meta charset="utf-8">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <meta name="color-scheme" content="light dark">
            <title>\(self.title.htmlEscaped)</title>
            </head>
            <body style="margin:0;background:#f2f4f7;font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif">
            <table role="presentation" width="100%" cellpadding="0" cellspacing="0"><tr>
            <td align="center" style="padding:24px">
            <table role="presentation" width="100%" cellpadding="0" cellspacing="0" \
            style="max-width:568px;background:#ffffff;color:#1a1d23;border-radius:12px;text-align:left;text-align:start">
            <tr><td style="height:16px"></td></tr>
            \(rows)<tr><td style="height:16px"></td></tr>
            </table>
            \(foot)</td>
            </tr></table>
            </body>
            </html>

            """
    }

    private static func row(_ content: String) -> String {
        "<tr><td style=\"padding:8px 24px\">\(content)</td></tr>\n"
    }

    /// The body's paragraphs, escaped, with their line breaks.
    private var paragraphs: [String] {
        let lines = self.body.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
        let groups = lines.split { $0.allSatisfy(\.isWhitespace) }
        return groups.map { group in group.map { $0.htmlEscaped }.joined(separator: "<br>\n") }
    }
}
