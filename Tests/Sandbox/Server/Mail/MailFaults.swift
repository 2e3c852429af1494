// Carillon · MailFaults.swift
// SPDX-License-Identifier: Apache-2.0

/// The faults that addresses choose by how their local part begins.
struct MailFaults: Sendable {
    /// At which command a fault shows.
    enum Stage: Sendable {
        case sender, recipient, content
    }

    private struct Row {
        let word: String
        let stage: Stage
        let verdict: MailVerdict
    }

    private static let rows: [Row] = [
        Row(word: "bounce", stage: .recipient, verdict: .refuse("550 5.1.1 No such user here")),
        Row(word: "nodomain", stage: .recipient, verdict: .refuse("550 5.1.2 No such domain")),
        Row(word: "moved", stage: .recipient, verdict: .refuse("551 5.1.6 The mailbox has moved")),
        Row(word: "movedaway", stage: .recipient, verdict: .refuse("550 5.1.6 The mailbox has moved")),
        Row(word: "unknown", stage: .recipient, verdict: .refuse("550 5.1.10 Recipient not found")),
        Row(word: "nullmx", stage: .recipient, verdict: .refuse("556 5.1.10 The domain takes no mail")),
        Row(word: "notlocal", stage: .recipient, verdict: .refuse("551 User not local")),
        Row(word: "nomail", stage: .recipient, verdict: .refuse("556 Domain does not accept mail")),
        Row(word: "refused", stage: .recipient, verdict: .refuse("550 5.7.1 Refused by policy")),
        Row(word: "gone", stage: .recipient, verdict: .refuse("550 No")),
        Row(word: "busy", stage: .recipient, verdict: .refuse("451 4.7.1 Greylisted, come back later")),
        Row(word: "closing", stage: .recipient, verdict: .refuseAndClose("421 4.3.2 Shutting down")),
        Row(word: "netdown", stage: .recipient, verdict: .refuse("451 4.4.1 The next host does not answer")),
        Row(word: "wantslogin", stage: .recipient, verdict: .refuse("530 5.7.0 Authentication required")),
        Row(word: "cutearly", stage: .recipient, verdict: .cut),
        Row(word: "later", stage: .content, verdict: .refuse("452 4.3.1 Out of room")),
        Row(word: "spam", stage: .content, verdict: .refuse("554 5.7.1 Looks like spam")),
        Row(word: "full", stage: .content, verdict: .refuse("552 5.2.2 Mailbox full")),
        Row(word: "toolarge", stage: .content, verdict: .refuse("552 5.3.4 Message too big")),
        Row(word: "babble", stage: .content, verdict: .refuse("What was that?")),
        Row(word: "deadend", stage: .content, verdict: .refuse("550 5.1.1 No such user after all")),
        Row(word: "slow", stage: .content, verdict: .acceptLate),
        Row(word: "silent", stage: .content, verdict: .silence),
        Row(word: "cut", stage: .content, verdict: .cut),
        Row(word: "busysender", stage: .sender, verdict: .refuseAndClose("421 4.7.0 Too many messages")),
        Row(word: "cutlate", stage: .sender, verdict: .cutLate),
        Row(word: "slowsender", stage: .sender, verdict: .refuse("451 4.7.1 Slowly")),
        Row(word: "badsender", stage: .sender, verdict: .refuse("550 5.7.1 Not your address")),
        Row(word: "nosender", stage: .sender, verdict: .refuse("550 5.1.1 Unknown sender")),
        Row(word: "largesender", stage: .sender, verdict: .refuse("552 5.3.4 Too large")),
    ]

    static var help: String {
        let lines = Self.rows.map { row in
            let effect =
                switch row.verdict {
                case .accept: "accepted"
                case .acceptLate: "accepted, answered late"
                case .refuse(let reply), .refuseAndClose(let reply): reply
                case .silence: "no answer at all"
                case .cut: "connection cut"
                case .cutLate: "connection cut, late"
                }
            let word = "  \(row.word)-"
            return word + String(repeating: " ", count: max(1, 20 - word.count)) + "\(row.stage): \(effect)"
        }
        return """
            E-mail: an address whose local part starts with one of these always gets the
            answer beside it, at that command. Followed by once- (busy-once-ada@…) or a
            count and x- (busy-3x-ada@…) only the first tries of that very address do.
            The login is carillon with the password pass:word/1; any other gets 535.
            \(lines.joined(separator: "\n"))
            """
    }

    private let attempts: AttemptLedger

    init(attempts: AttemptLedger) {
        self.attempts = attempts
    }

    /// What this try of an address gets at a stage.
    func verdict(for address: String, at stage: Stage) -> MailVerdict {
        let parts = address.prefix { $0 != "@" }.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count > 1, let row = Self.rows.first(where: { $0.word == parts[0] && $0.stage == stage }) else {
            return .accept
        }
        let attempt = self.attempts.count(address)
        let word = parts.count > 2 ? parts[1] : ""
        let limit = word == "once" ? 1 : word.hasSuffix("x") ? Int(word.dropLast()) : nil
        return attempt <= limit ?? .max ? row.verdict : .accept
    }
}
