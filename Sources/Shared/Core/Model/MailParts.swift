// Carillon · MailParts.swift
// SPDX-License-Identifier: Apache-2.0

/// The parts of an e-mail, from the job or its template, or else from the notification's texts.
package struct MailParts: Sendable {
    private static let longestSubject = 200

    package let subject: String
    /// The plain text.
    package let text: String
    /// The job's HTML; nil for Carillon's own layout.
    package let html: String?
    package let replyTo: EmailAddress?
    /// The body in Carillon's own layout.
    package let body: String
    /// The notification's URL if a mail program can open it.
    package let link: String?

    /// - Parameters:
    ///   - title: plain text, like `body`.
    ///   - platform: the job's overrides, completed by its template.
    package init(type: String, title: String, body: String, url: String?, platform: [UInt8]?) {
        // Validated as JSON on arrival, but perhaps under older limits.
        let given = platform.flatMap { try? JSONParser.parse(stored: $0) }?["email"]
        let heading = title.oneLine
        let line = heading.isEmpty ? body.oneLine : heading
        let fallback = line.isEmpty ? type : line
        self.subject =
            given?["subject"]?.string ?? fallback.shortened(by: fallback.utf8.count - Self.longestSubject)
        let link = url.flatMap { Self.isWebAddress($0) ? $0 : nil }
        let text = given?["text"]?.string
        self.text = text ?? [title, body, link ?? ""].filter { !$0.isEmpty }.joined(separator: "\n\n")
        self.html = given?["html"]?.string
        self.replyTo = given?["reply_to"]?.string.flatMap { EmailAddress($0) }
        self.body = text ?? body
        self.link = link
    }

    /// Whether a mail program can open the URL; app links do not work there.
    private static func isWebAddress(_ url: String) -> Bool {
        let url = url.lowercased()
        return url.hasPrefix("https://") || url.hasPrefix("http://")
    }
}

extension String {
    /// The text with one space for each run of white space and control characters.
    package var oneLine: String {
        let isGap = { (scalar: Unicode.Scalar) in
            scalar.properties.isWhitespace || scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value)
        }
        let words = self.unicodeScalars.split(whereSeparator: isGap)
        return words.map { String(String.UnicodeScalarView($0)) }.joined(separator: " ")
    }
}
