// Carillon · EmailText.swift
// SPDX-License-Identifier: Apache-2.0

import Core

/// What an e-mail says: the parts that the job or its template gives, and what is made of the notification for the rest.
struct EmailText: Sendable, Equatable {
    var subject: String
    var text: String
    var html: String
    var replyTo: EmailAddress?

    /// - Parameter unsubscribe: where the recipient can stop such mail; nil for nowhere.
    init(_ notification: Notification, unsubscribe: String?) {
        // It was checked to be JSON when the job was taken.
        let platform = notification.extras.platform.flatMap { try? JSONParser.parse($0) }
        let given = platform?["email"]
        let title = EmailHeader.oneLine(notification.title)
        let line = title.isEmpty ? EmailHeader.oneLine(notification.body) : title
        self.subject = given?["subject"]?.string ?? (line.isEmpty ? notification.type : line).shortened(to: 200)
        let link = notification.extras.url.flatMap { Self.isWebAddress($0) ? $0 : nil }
        let body = given?["text"]?.string ?? notification.body
        var text = given?["text"]?.string ?? [notification.title, notification.body].paragraphs
        if given?["text"] == nil, let link { text += "\n\n\(link)" }
        if let unsubscribe { text += "\n\n-- \nUnsubscribe: \(unsubscribe)" }
        self.text = text
        self.html =
            given?["html"]?.string
            ?? EmailLayout(
                title: notification.title, body: body, link: link, image: Self.image(notification),
                unsubscribe: unsubscribe
            ).html
        self.replyTo = given?["reply_to"]?.string.flatMap { EmailAddress($0) }
    }

    private static func image(_ notification: Notification) -> String? {
        notification.extras.image.flatMap { $0.lowercased().hasPrefix("https://") ? $0 : nil }
    }

    /// Whether a mail program opens it; links into an app mean nothing there.
    private static func isWebAddress(_ url: String) -> Bool {
        let url = url.lowercased()
        return url.hasPrefix("https://") || url.hasPrefix("http://")
    }
}

extension [String] {
    /// Those that say something, with an empty line between them.
    fileprivate var paragraphs: String { self.filter { !$0.isEmpty }.joined(separator: "\n\n") }
}

extension String {
    /// The beginning, of so many bytes at most.
    fileprivate func shortened(to limit: Int) -> String { self.shortened(by: self.utf8.count - limit) }
}
