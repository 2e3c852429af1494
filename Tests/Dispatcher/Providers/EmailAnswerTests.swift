// Carillon · EmailAnswerTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@testable import Clients
@testable import Providers

@Suite("Mail relay answers", .timeLimit(.minutes(10)))
struct EmailAnswerTests {
    private static func read(_ stage: MailReply.Stage, _ code: Int, _ text: String) -> ProviderAnswer {
        EmailAnswer.read(MailReply(stage: stage, code: code, text: text))
    }

    @Test("an accepted message has the relay's queue id if given")
    func accepted() {
        #expect(Self.read(.content, 250, "2.0.0 Ok: queued as 4B1C2D") == .accepted(id: "4B1C2D"))
        #expect(Self.read(.content, 250, "Ok") == .accepted(id: nil))
        #expect(Self.read(.content, 250, "queued as 4B\u{0}1C2D") == .accepted(id: nil))
        #expect(Self.read(.content, 250, "") == .accepted(id: nil))
    }

    @Test("a temporary refusal is retried after at least a minute; a mailbox's fault is not the relay's")
    func later() {
        let minute = Duration.seconds(60)
        for stage in [MailReply.Stage.session, .sender] {
            #expect(Self.read(stage, 451, "4.7.1 Slowly") == .retry(reason: "SMTP_451_4.7.1", after: minute))
        }
        for stage in [MailReply.Stage.recipient, .content] {
            let greylisted = ProviderAnswer.retryDevice(reason: "SMTP_451_4.7.1", after: minute)
            #expect(Self.read(stage, 451, "4.7.1 Greylisted") == greylisted)
            #expect(Self.read(stage, 450, "Busy") == .retryDevice(reason: "SMTP_450", after: minute))
            #expect(Self.read(stage, 452, "4.3.1 Out of room") == .retry(reason: "SMTP_452_4.3.1", after: minute))
            #expect(Self.read(stage, 421, "Closing") == .retry(reason: "SMTP_421", after: minute))
        }
        #expect(Self.read(.session, 454, "4.7.0 No TLS") == .retry(reason: "SMTP_454_4.7.0", after: minute))
    }

    @Test("congestion is a temporary fault of the relay, even with a 5xx code", arguments: MailReply.Stage.allCases)
    func congested(stage: MailReply.Stage) {
        let retry = ProviderAnswer.retry(reason: "SMTP_550_5.4.5", after: .seconds(60))
        #expect(Self.read(stage, 550, "5.4.5 Daily user sending limit exceeded") == retry)
    }

    @Test(
        "a nonexistent address differs from a refusing one",
        arguments: [
            ("5.1.1", true), ("5.1.2", true), ("5.1.6", true), ("5.1.10", true), ("5.1.0", false), ("5.1.3", false),
            ("5.2.1", false), ("5.2.2", false), ("5.5.0", false), ("5.1.11", false),
        ])
    func refused(code: String, isDead: Bool) {
        let reason = "SMTP_550_\(code)"
        for stage in [MailReply.Stage.recipient, .content] {
            let expected = isDead ? ProviderAnswer.deadToken(reason: reason, evidence: nil) : .refused(reason: reason)
            #expect(Self.read(stage, 550, "\(code) Words of \(code)") == expected)
        }
    }

    @Test(
        "a relay that refuses the host or sender at the recipient is a partial configuration fault",
        arguments: [
            (554, "5.7.1 <ada@example.com>: Relay access denied"),
            (553, "5.7.1 <notices@example.com>: Sender address rejected: not owned by user carillon"),
            (550, "5.7.26 Unauthenticated mail is not accepted"), (551, "5.7.1 Relaying denied"),
            (550, "5.1.7 Bad sender address"),
            (550, "5.1.8 <notices@example.com>: Sender address rejected: Domain not found"),
            (504, "5.5.2 <host>: Helo command rejected: need fully-qualified hostname"),
        ])
    func refusedSender(code: Int, text: String) {
        let enhanced = text.prefix { $0 != " " }
        let reason = "SMTP_\(code)_\(enhanced)"
        #expect(Self.read(.recipient, code, text) == .configuration(reason: reason, concernsAll: false))
        // The content's refusal is about the content.
        #expect(Self.read(.content, code, text) == .refused(reason: reason))
    }

    @Test(
        "551 and 556 alone mean a dead address; 550 alone does not",
        arguments: [
            (551, "User not local", true), (551, "", true), (556, "Domain does not accept mail", true),
            (551, "5.7.1 Relaying denied", false), (556, "5.7.27 Sender has no MX", false),
            (550, "No such user", false), (550, "", false), (553, "Mailbox name not allowed", false),
            (554, "No", false),
        ])
    func bare(code: Int, text: String, isDead: Bool) {
        #expect(Self.read(.recipient, code, text).isDeadToken == isDead)
        // After the content they do not necessarily blame the address.
        #expect(!Self.read(.content, code, text).isDeadToken)
    }

    @Test(
        "an enhanced code counts at the start of any line, and in a relay's marks",
        arguments: [
            "5.1.1 No\n5.1.1 such user", "Sorry\n5.1.1 No such user", "#5.1.1 No such user", "[5.1.1] No such user",
            "(#5.1.1)", "5.1.1: No such user", " 5.1.1 No such user",
        ])
    func places(text: String) {
        #expect(Self.read(.recipient, 550, text) == .deadToken(reason: "SMTP_550_5.1.1", evidence: nil))
    }

    @Test("an enhanced code counts only at a line's start and in the reply's class")
    func codes() {
        #expect(Self.read(.recipient, 550, "No such user 5.1.1") == .refused(reason: "SMTP_550"))
        #expect(Self.read(.recipient, 550, "No\nuser 5.1.1") == .refused(reason: "SMTP_550"))
        #expect(Self.read(.recipient, 550, "<ada@example.com>: 5.1.1") == .refused(reason: "SMTP_550"))
        #expect(Self.read(.recipient, 550, "4.1.1 Confused") == .refused(reason: "SMTP_550"))
        #expect(Self.read(.recipient, 550, "5.1.1234 Confused") == .refused(reason: "SMTP_550"))
        #expect(Self.read(.recipient, 550, "") == .refused(reason: "SMTP_550"))
    }

    @Test("a refusal of the session or sender is a configuration fault")
    func configuration() {
        #expect(Self.read(.session, 535, "5.7.8 Bad credentials") == .configuration(reason: "SMTP_535_5.7.8"))
        #expect(Self.read(.session, 554, "No service") == .configuration(reason: "SMTP_554"))
        #expect(Self.read(.sender, 550, "5.1.1 Unknown sender") == .configuration(reason: "SMTP_550_5.1.1"))
        #expect(Self.read(.recipient, 530, "5.7.0 Log in first") == .configuration(reason: "SMTP_530_5.7.0"))
        #expect(Self.read(.sender, 552, "5.3.4 Too large") == .refused(reason: "SMTP_552_5.3.4"))
        #expect(EmailAnswer.read(TransferFailure(.tls, code: 64)) == .configuration(reason: "no_starttls"))
        for code in [67, 94] {
            #expect(EmailAnswer.read(TransferFailure(.other, code: code)) == .configuration(reason: "login_denied"))
        }
        #expect(EmailAnswer.read(TransferFailure(.connect, code: 7)) == nil)
    }
}

extension ProviderAnswer {
    fileprivate var isDeadToken: Bool {
        if case .deadToken = self { true } else { false }
    }
}
