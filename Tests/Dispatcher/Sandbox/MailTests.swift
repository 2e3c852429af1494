// Carillon · MailTests.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Logging
import Testing

@testable import Sandbox

@Suite("Mail relay", .timeLimit(.minutes(10)))
struct MailTests {
    /// A session and its log.
    private struct Client {
        let log: ReceivedLog
        var session: SMTPSession

        init(isSecure: Bool, relay: SandboxConfiguration.Relay = .usual) {
            var configuration = SandboxConfiguration()
            configuration.relay = relay
            self.log = ReceivedLog(configuration, logger: Logger(label: "test"))
            let faults = MailFaults(attempts: AttemptLedger())
            self.session = SMTPSession(MailEndpoint(faults: faults, log: self.log, configuration), isSecure: isSecure)
        }

        /// The actions that `text` causes: replies as they are, other actions in brackets.
        mutating func send(_ text: String) -> [String] {
            self.session.receive(text.utf8).map { action in
                switch action {
                case .reply(let reply): reply
                case .replyLate(let reply): "late \(reply)"
                case .startTLS: "[tls]"
                case .close: "[close]"
                case .closeLate: "late [close]"
                }
            }
        }

        /// The reply codes of lines that are sent one by one.
        mutating func codes(_ lines: [String]) -> [String] {
            lines.flatMap { line in
                self.send(line + "\r\n").map { String($0.split(separator: "\n").last?.prefix(3) ?? "") }
            }
        }
    }

    private static let login = "AUTH PLAIN " + Data("\0carillon\0pass:word/1".utf8).base64EncodedString()
    private static let open = [
        "EHLO me", Self.login, "MAIL FROM:<a@example.com> SIZE=100", "RCPT TO:<b@example.com>", "DATA",
    ]
    private static let header = """
        From: a@example.com\r
        To: b@example.com\r
        Subject: =?utf-8?B?WsO8?= =?utf-8?B?cmljaA==?= now\r
        Date: Sat, 21 Nov 2026 10:00:00 +0000\r
        Message-ID: <1@example.com>\r
        MIME-Version: 1.0\r

        """

    @Test("takes a session from EHLO to a message shown in parts")
    func way() throws {
        var client = Client(isSecure: false)
        #expect(client.codes(["EHLO me", "STARTTLS"]) == ["250", "220", "[tl"])
        #expect(client.codes(Self.open) == ["250", "235", "250", "250", "354"])
        let content =
            Self.header
            + "Content-Type: multipart/alternative; boundary=\"=_x\"\r\n\r\n--=_x\r\nContent-Type: text/plain; charset=utf-8\r\n"
            + "Content-Transfer-Encoding: quoted-printable\r\n\r\n..dot =C3=BC=\r\n on\r\n--=_x\r\nContent-Type: text/html\r\n\r\n"
            + "<p>hi</p>\r\n--=_x--\r\n.\r\n"
        #expect(client.send(content).first?.hasPrefix("250 2.0.0 Ok: queued as ") == true)
        #expect(client.codes(["MAIL FROM:<a@example.com>", "QUIT"]) == ["250", "221", "[cl"])
        let got = try #require(client.log.messages(since: 0, limit: 9).first)
        let payload = try JSONSerialization.jsonObject(with: Data(got.payload)) as? [String: String]
        #expect(got.token == "b@example.com" && got.headers["message-id"] == "<1@example.com>")
        #expect(
            payload == [
                "sender": "a@example.com", "subject": "Zürich now", "text": ".dot ü on", "html": "<p>hi</p>",
            ])
    }

    @Test("rejects commands out of order and mail before TLS and login")
    func order() {
        var client = Client(isSecure: false)
        #expect(client.codes(["MAIL FROM:<a@b.c>", "STARTTLS"]) == ["503", "503"])
        #expect(client.codes(["EHLO", "EHLO me", "MAIL FROM:<a@b.c>", Self.login]) == ["501", "250", "530", "530"])
        #expect(client.send("STARTTLS\r\nMAIL FROM:<evil@b.c>\r\n") == ["220 2.0.0 Ready to start TLS", "[tls]"])
        #expect(client.codes(["MAIL FROM:<a@b.c>", "EHLO me", "MAIL FROM:<a@b.c>"]) == ["503", "250", "530"])
        let wrong = Data("\0carillon\0wrong".utf8).base64EncodedString()
        #expect(
            client.codes(["AUTH PLAIN \(wrong)", "AUTH LOGIN", "AUTH PLAIN", "!"]) == ["535", "504", "334", "535"])
        #expect(client.codes([Self.login, Self.login, "RCPT TO:<b@b.c>", "DATA"]) == ["235", "503", "503", "503"])
        #expect(
            client.codes(["MAIL FROM:<a@b.c>", "MAIL FROM:<a@b.c>", "DATA", "RSET"]) == ["250", "503", "503", "250"])
        #expect(
            client.codes(["MAIL FROM:a@b.c", "MAIL FROM:<a@b.c> BODY=8BITMIME", "HELO me"]) == ["501", "555", "500"])
        #expect(client.codes(["MAIL FROM:<a@b.c> SIZE=99999999"]) == ["552"])
    }

    @Test("refuses service, TLS or logins on request")
    func unusual() {
        var closed = Client(isSecure: false, relay: .withoutService)
        #expect(closed.session.greeting == .reply("554 5.3.2 No service here"))
        #expect(closed.codes(["EHLO me", "STARTTLS", "QUIT"]) == ["503", "503", "221", "[cl"])
        var refusing = Client(isSecure: false, relay: .refusedTLS)
        #expect(refusing.codes(["EHLO me", "STARTTLS"]) == ["250", "502"])
        var busy = Client(isSecure: false, relay: .busyTLS)
        #expect(busy.codes(["EHLO me", "STARTTLS"]) == ["250", "454"])
        var busyLogin = Client(isSecure: true, relay: .busyLogin)
        #expect(busyLogin.codes(["EHLO me", Self.login, "MAIL FROM:<a@b.c>"]) == ["250", "454", "530"])
        var kerberos = Client(isSecure: true, relay: .kerberosLogin)
        #expect(
            kerberos.codes(["EHLO me", "AUTH GSSAPI", "!", "AUTH LOGIN", Self.login])
                == ["250", "334", "535", "504", "235"])
    }

    @Test("rejects lines without CRLF and lines that are too long")
    func lines() {
        var client = Client(isSecure: true)
        #expect(client.send("EHLO me\n").first?.hasPrefix("500") == true)
        #expect(client.send("NOOP " + String(repeating: "x", count: 600) + "\r\n").first?.hasPrefix("500") == true)
        #expect(client.send(String(repeating: "x", count: 1_100)).last == "[close]")
    }

    @Test(
        "rejects a malformed message and says what is wrong",
        arguments: [
            ("Content-Type: text/plain\r\n\r\nbare\nline\r\n", "CRLF"),
            ("Content-Type: text/plain\r\n\r\n" + String(repeating: "x", count: 999) + "\r\n", "too long"),
            ("Content-Type: text/plain\r\n\r\nZürich\r\n", "ASCII"),
            ("Content-Type: text/plain\r\nSubject: two\r\n\r\n", "subject"),
            ("Content-Type: text/plain\r\nno field\r\n\r\n", "not a field"),
            ("\r\nx\r\n", "content-type"),
            ("Content-Type: multipart/alternative; boundary=x\r\n\r\n--x\r\n\r\nhi\r\n", "boundary"),
            (
                "Content-Type: text/plain\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=zz\r\n",
                "two hexadecimal digits"
            ),
        ])
    func faulty(rest: String, words: String) {
        var client = Client(isSecure: true)
        _ = client.codes(Self.open)
        let reply = client.send(Self.header + rest + ".\r\n")
        #expect(reply.count == 1 && reply[0].hasPrefix("554 5.6.0") && reply[0].contains(words), "\(reply)")
    }

    @Test("lets addresses choose a fault, its stage and its number of attempts")
    func faults() {
        var client = Client(isSecure: true)
        _ = client.codes(Array(Self.open.prefix(3)))
        #expect(client.codes(["RCPT TO:<bounce-a@b.c>", "RCPT TO:<bounce-a@b.c>"]) == ["550", "550"])
        let busy = "RCPT TO:<busy-2x-a@b.c>"
        #expect(client.codes([busy, busy, busy]) == ["451", "451", "250"])
        #expect(client.codes(["RSET", "MAIL FROM:<busysender-a@b.c>"]) == ["250", "421", "[cl"])
    }
}
