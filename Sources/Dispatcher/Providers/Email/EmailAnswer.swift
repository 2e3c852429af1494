// Carillon · EmailAnswer.swift
// SPDX-License-Identifier: Apache-2.0

import Clients

/// Maps a relay's replies (RFC 5321 section 4.2, RFC 3463).
package enum EmailAnswer {
    /// Greylisting relays refuse retries for a while.
    private static let firstDelay: Duration = .seconds(60)
    /// The mailbox or its domain does not exist, has moved, or accepts no mail.
    private static let deadCodes: Set<String> = ["5.1.1", "5.1.2", "5.1.6", "5.1.10"]
    /// Reply codes that mean the same without an enhanced code (RFC 5321 section 3.4, RFC 7504).
    ///
    /// Not 550, which relays also use for policy.
    private static let deadReplies: Set<Int> = [551, 556]
    /// Congestion, which is never permanent (RFC 3463 section 3.5); Google sends it with 550 for a
    /// used-up quota.
    private static let congested = "5.4.5"
    private static let longestReason = 64

    private static let byPolicy =
        "the relay or the receiver refuses mail from us; check the relay's rules, SMTP_FROM, SPF and DKIM"

    /// Advice for known reasons; other codes speak for themselves.
    package static let rules: [AnswerRule] = [
        AnswerRule("SMTP_550_5.1.1", .deadToken, "there is no such mailbox; ask the user for another address"),
        AnswerRule(
            "SMTP_550_5.1.2", .deadToken, "the address's domain accepts no mail; ask the user for another address"),
        AnswerRule("SMTP_550_5.1.6", .deadToken, "the mailbox has moved; ask the user for the new address"),
        AnswerRule("SMTP_551_5.1.6", .deadToken, "the mailbox has moved; ask the user for the new address"),
        AnswerRule("SMTP_551", .deadToken, "the mailbox has moved; ask the user for the new address"),
        AnswerRule("SMTP_556", .deadToken, "the address's domain accepts no mail; ask the user for another address"),
        AnswerRule("SMTP_550_5.1.10", .deadToken, "there is no such mailbox; ask the user for another address"),
        AnswerRule(
            "SMTP_556_5.1.10", .deadToken, "the address's domain accepts no mail; ask the user for another address"),
        AnswerRule("SMTP_550_5.7.1", .partialConfiguration, byPolicy),
        AnswerRule("SMTP_554_5.7.1", .partialConfiguration, byPolicy),
        AnswerRule("SMTP_552_5.3.4", .refused, "the message is too large for the receiver"),
        AnswerRule("SMTP_535_5.7.8", .configuration, "check the user and the password of SMTP_URL"),
        AnswerRule("SMTP_530_5.7.0", .configuration, "the relay requires a login; set it in SMTP_URL"),
        AnswerRule("login_denied", .configuration, "check the user and the password of SMTP_URL"),
        AnswerRule("no_starttls", .configuration, "the relay offers no TLS; use smtps:// or another relay"),
        AnswerRule("SMTP_421_4.3.2", .retry, after: firstDelay, "the relay is busy; no action needed"),
        AnswerRule(
            "SMTP_550_5.4.5", .retry, after: firstDelay,
            "the relay's quota of mails is used up; raise it at the relay, or send less mail"),
    ]

    /// Maps a reply.
    static func read(_ reply: MailReply) -> ProviderAnswer {
        if reply.isAccepted { return .accepted(id: self.queueID(reply.text)) }
        let reason = self.reason(reply)
        guard (500..<600).contains(reply.code), reply.enhancedCode != self.congested else {
            // A fault of one mailbox is not the relay's.
            return self.concernsRelay(reply)
                ? .retry(reason: reason, after: self.firstDelay) : .retryDevice(reason: reason, after: self.firstDelay)
        }
        switch reply.stage {
        case .session: return .configuration(reason: reason)
        case .sender:
            // 552 rejects the announced size; anything else rejects the sender.
            return reply.code == 552 ? .refused(reason: reason) : .configuration(reason: reason)
        case .recipient, .content:
            if self.isDead(reply) { return .deadToken(reason: reason, evidence: nil) }
            // A relay that requires a login may say so at any command.
            if reply.code == 530 || reply.code == 535 { return .configuration(reason: reason) }
            return self.concernsSender(reply)
                ? .configuration(reason: reason, concernsAll: false) : .refused(reason: reason)
        }
    }

    /// Whether a refusal of the recipient may be about the host, the login or the sender.
    ///
    /// Relays such as Postfix check those only once they know the recipient.
    private static func concernsSender(_ reply: MailReply) -> Bool {
        guard reply.stage == .recipient, let code = reply.enhancedCode else { return false }
        // Policy, the sender's address, or the name in EHLO (RFC 3463 section 3).
        return code.hasPrefix("5.7.") || ["5.1.7", "5.1.8", "5.5.2"].contains(code)
    }

    private static func isDead(_ reply: MailReply) -> Bool {
        if let code = reply.enhancedCode { return self.deadCodes.contains(code) }
        return reply.stage == .recipient && self.deadReplies.contains(reply.code)
    }

    private static func concernsRelay(_ reply: MailReply) -> Bool {
        if reply.stage == .session || reply.stage == .sender || reply.code == 421 { return true }
        // Mail system status, or network and routing status (RFC 3463 section 3).
        guard let code = reply.enhancedCode else { return false }
        return code.hasPrefix("4.3.") || code.hasPrefix("4.4.") || code == self.congested
    }

    /// Maps a failure without a reply; nil if it says nothing about the configuration.
    static func read(_ failure: TransferFailure) -> ProviderAnswer? {
        switch failure.code {
        case 64: .configuration(reason: "no_starttls")
        case 67, 94: .configuration(reason: "login_denied")
        default: nil
        }
    }

    /// `SMTP_550_5.1.1`: codes only, because the text may name people.
    private static func reason(_ reply: MailReply) -> String {
        "SMTP_\(reply.code)" + (reply.enhancedCode.map { "_\($0)" } ?? "")
    }

    /// Returns the relay's name for the message if given: the last word of `250 2.0.0 Ok: queued as
    /// 4B1C2D`.
    private static func queueID(_ text: String) -> String? {
        let words = text.split { $0 == " " || $0 == "\n" }
        // PostgreSQL stores no U+0000, and a relay may send anything.
        guard let last = words.last, last.utf8.count <= self.longestReason, last.contains(where: \.isNumber),
            last.utf8.allSatisfy({ (0x21...0x7E).contains($0) })
        else { return nil }
        return String(last)
    }
}
