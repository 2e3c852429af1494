// Carillon · MailEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Foundation
import NIOHPACK
import Synchronization

/// The decisions of a mail relay: logins, senders, recipients and well-formed messages.
struct MailEndpoint: Sendable {
    static let user = "carillon"
    /// Contains characters that a URL must percent-encode.
    static let password = "pass:word/1"
    /// The SIZE that EHLO announces, in bytes.
    static let sizeLimit = 10 * 1_024 * 1_024

    private let faults: MailFaults
    private let log: ReceivedLog
    private let configuration: SandboxConfiguration
    private let connections = ConnectionCount()

    init(faults: MailFaults, log: ReceivedLog, _ configuration: SandboxConfiguration) {
        self.faults = faults
        self.log = log
        self.configuration = configuration
    }

    var relay: SandboxConfiguration.Relay { self.configuration.relay }

    /// Counts a new connection, and returns whether the relay takes it; only then ``close()`` it.
    func open() -> Bool { self.connections.open(limit: self.configuration.mailConnections) }

    func close() { self.connections.close() }

    func mayLogIn(user: String, password: String) -> Bool {
        // Many relays name users with their domain.
        [Self.user, "\(Self.user)@example.com"].contains(user) && password == Self.password
    }

    func verdict(sender: String) -> MailVerdict { self.noted(self.faults.verdict(for: sender, at: .sender)) }

    func verdict(recipient: String) -> MailVerdict { self.noted(self.faults.verdict(for: recipient, at: .recipient)) }

    /// Accepts a message unless it is malformed or its recipient has a fault.
    func verdict(sender: String, recipient: String, content: [UInt8]) -> MailVerdict {
        let mail: ParsedMail
        do {
            mail = try ParsedMail(content)
        } catch {
            return self.noted(.refuse("554 5.6.0 \(error.reason)"))
        }
        var headers = HPACKHeaders()
        for field in mail.fields { headers.add(name: field.name.lowercased(), value: field.value) }
        var writer = JSONWriter()
        writer.beginObject()
        writer.member("sender", sender)
        writer.member("subject", mail.subject)
        if let text = mail.part("text/plain") { writer.member("text", text) }
        if let html = mail.part("text/html") { writer.member("html", html) }
        writer.endObject()
        let payload = writer.bytes
        let now = self.configuration.clock()
        let verdict = self.faults.verdict(for: recipient, at: .content)
        switch verdict {
        case .accept, .acceptLate:
            self.log.accept(.email, token: recipient, headers: headers, payload: payload, at: now)
        case .cut: self.log.cut(.email, token: recipient, headers: headers, payload: payload, at: now)
        case .refuse, .refuseAndClose, .silence, .cutLate: break
        }
        return self.noted(verdict)
    }

    private func noted(_ verdict: MailVerdict) -> MailVerdict {
        if case .refuse(let reply) = verdict { self.log.refuse(.email, name: String(reply.prefix(3))) }
        if case .refuseAndClose(let reply) = verdict { self.log.refuse(.email, name: String(reply.prefix(3))) }
        return verdict
    }
}

/// The number of connections that the relay has taken.
private final class ConnectionCount: Sendable {
    private let count = Mutex(0)

    func open(limit: Int) -> Bool {
        self.count.withLock { count in
            guard count < limit else { return false }
            count += 1
            return true
        }
    }

    func close() { self.count.withLock { $0 -= 1 } }
}

/// The relay's reaction to a step of a mail transaction.
enum MailVerdict: Sendable, Equatable {
    case accept
    /// Accepted, but answered late.
    case acceptLate
    /// A reply such as `550 5.1.1 No such user here`.
    case refuse(String)
    /// Replies and closes the connection.
    case refuseAndClose(String)
    case silence
    case cut
    /// Closes the connection after a delay.
    case cutLate
}

/// The faults that e-mail addresses choose by the start of their local part.
struct MailFaults: Sendable {
    /// The SMTP command at which a fault occurs.
    enum Stage: Sendable {
        case sender, recipient, content
    }

    private struct Row {
        let word: String
        let stage: Stage
        let verdict: MailVerdict
    }

    /// Stands for the address that chose the fault, with a combining mark after it.
    private static let address = "<address>"

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
        Row(word: "norelay", stage: .recipient, verdict: .refuse("554 5.7.1 Relay access denied")),
        Row(word: "gone", stage: .recipient, verdict: .refuse("550 No")),
        Row(word: "disabled", stage: .recipient, verdict: .refuse("550 5.2.1 \(Self.address) is disabled")),
        Row(word: "busy", stage: .recipient, verdict: .refuse("451 4.7.1 Greylisted, come back later")),
        Row(word: "closing", stage: .recipient, verdict: .refuseAndClose("421 4.3.2 Shutting down")),
        Row(word: "netdown", stage: .recipient, verdict: .refuse("451 4.4.1 The next host does not answer")),
        Row(word: "wantslogin", stage: .recipient, verdict: .refuse("530 5.7.0 Authentication required")),
        Row(word: "cutearly", stage: .recipient, verdict: .cut),
        Row(word: "crowded", stage: .content, verdict: .refuse("432 4.3.2 Concurrent connections limit exceeded")),
        Row(word: "later", stage: .content, verdict: .refuse("452 4.3.1 Out of room")),
        Row(word: "spam", stage: .content, verdict: .refuse("554 5.7.1 Looks like spam")),
        Row(word: "full", stage: .content, verdict: .refuse("552 5.2.2 Mailbox full")),
        Row(word: "overquota", stage: .content, verdict: .refuse("550 5.4.5 Daily user sending limit exceeded")),
        Row(word: "toolarge", stage: .content, verdict: .refuse("552 5.3.4 Message too big")),
        // Closes, because libcurl would wait two minutes for a line with a reply code.
        Row(word: "babble", stage: .content, verdict: .refuseAndClose("What was that?")),
        Row(word: "deadend", stage: .content, verdict: .refuse("550 5.1.1 No such user")),
        Row(word: "slow", stage: .content, verdict: .acceptLate),
        Row(word: "silent", stage: .content, verdict: .silence),
        Row(word: "cut", stage: .content, verdict: .cut),
        Row(word: "busysender", stage: .sender, verdict: .refuseAndClose("421 4.7.0 Too many messages")),
        Row(word: "cutlate", stage: .sender, verdict: .cutLate),
        Row(word: "slowsender", stage: .sender, verdict: .refuse("451 4.7.1 Slow down")),
        Row(word: "badsender", stage: .sender, verdict: .refuse("550 5.7.1 Sender not allowed")),
        Row(word: "nosender", stage: .sender, verdict: .refuse("550 5.1.1 Unknown sender")),
        Row(word: "largesender", stage: .sender, verdict: .refuse("552 5.3.4 Too large")),
    ]

    static var help: String {
        let lines = Self.rows.map { row in
            let effect =
                switch row.verdict {
                case .accept: "accepted"
                case .acceptLate: "accepted after a delay"
                case .refuse(let reply), .refuseAndClose(let reply): reply
                case .silence: "no answer at all"
                case .cut: "connection cut"
                case .cutLate: "connection cut, late"
                }
            let word = "  \(row.word)-"
            return word + String(repeating: " ", count: max(1, 20 - word.count)) + "\(row.stage): \(effect)"
        }
        return """
            E-mail: an address whose local part has one of these prefixes always gets the
            answer next to it, at that command. With once- (busy-once-ada@…) or a count
            (busy-3x-ada@…) after the prefix, only the first attempts of that address do.
            The login is carillon with the password pass:word/1; others get 535.
            \(lines.joined(separator: "\n"))
            """
    }

    private let attempts: AttemptLedger

    init(attempts: AttemptLedger) {
        self.attempts = attempts
    }

    /// Counts an attempt for an address and returns its verdict at this stage.
    func verdict(for address: String, at stage: Stage) -> MailVerdict {
        let parts = address.prefix { $0 != "@" }.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count > 1, let row = Self.rows.first(where: { $0.word == parts[0] && $0.stage == stage }) else {
            return .accept
        }
        let attempt = self.attempts.count(address)
        let word = parts.count > 2 ? parts[1] : ""
        let limit = word == "once" ? 1 : word.hasSuffix("x") ? Int(word.dropLast()) : nil
        guard attempt <= limit ?? .max else { return .accept }
        guard case .refuse(let reply) = row.verdict else { return row.verdict }
        return .refuse(reply.replacing(Self.address, with: "\(address)\u{301}"))
    }
}
