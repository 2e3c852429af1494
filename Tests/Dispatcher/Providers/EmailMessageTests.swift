// Carillon · EmailMessageTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Testing

@testable import Providers

@Suite("Mail messages", .timeLimit(.minutes(10)))
struct EmailMessageTests {
    @Test("the header has sender, recipient, subject, date and unsubscribe link, equal at each attempt")
    func header() throws {
        let link = "https://example.com/v1/unsubscribe?token=abc"
        let mail = try MailText.make(unsubscribe: link) {
            $0.category = "news:daily"
            $0.org = "acme"
        }
        let fields = mail.fields.map { "\($0.name): \($0.value)" }
        #expect(
            fields == [
                #"From: "Carillon" <notices@example.com>"#,
                "To: ada@example.com",
                "Subject: Hello",
                "Date: Fri, 20 Nov 2026 10:00:00 +0000",
                "Message-ID: <\(Messages.id)@example.com>",
                "List-Unsubscribe: <\(link)>",
                "List-Unsubscribe-Post: List-Unsubscribe=One-Click",
                "Auto-Submitted: auto-generated",
                "Feedback-ID: greeting:news-daily:acme:carillon",
                "MIME-Version: 1.0",
                #"Content-Type: multipart/alternative; boundary="=_\#(Messages.id)""#,
            ])
        #expect(
            try MailText.make(unsubscribe: link) {
                $0.category = "news:daily"; $0.org = "acme"
            }.raw == mail.raw)
        #expect(try MailText.make().values("List-Unsubscribe").isEmpty)
    }

    @Test(
        "a subject in any script is encoded in short lines and whole characters",
        arguments: [
            "Grüße aus Zürich", "お支払いが完了しました。ご利用ありがとうございます。またのご利用をお待ちしております。",
            "🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉", "=?utf-8?B?SGk=?=", String(repeating: "x", count: 250),
        ])
    func subject(text: String) throws {
        let mail = try MailText.make { $0.title = text }
        let value = try #require(mail.values("Subject").first)
        #expect(value.hasPrefix("=?utf-8?B?"))
        // For a very long text without our link, checking the beginning is enough.
        let decoded = MailText.words(value)
        #expect(decoded == text || decoded.hasSuffix("…") && text.hasPrefix(decoded.dropLast()))
        for word in value.split(separator: " ") { #expect(word.utf8.count <= 75) }
        #expect(mail.headerLines.allSatisfy { $0.utf8.count <= 78 })
        #expect(mail.raw.utf8.allSatisfy { $0 < 0x80 })
    }

    @Test("a long plain subject is folded between words")
    func folded() throws {
        let title = Array(repeating: "word", count: 30).joined(separator: " ")
        let mail = try MailText.make { $0.title = title }
        #expect(mail.values("Subject") == [title])
        #expect(mail.headerLines.allSatisfy { $0.utf8.count <= 78 })
    }

    @Test("no text can inject a header field", arguments: ["\r\n", "\n", "\r", "\u{2028}", "\u{85}", "\0"])
    func injection(separator: String) throws {
        let mail = try MailText.make { $0.title = "Hi\(separator)Bcc: eve@example.com" }
        #expect(mail.values("Bcc").isEmpty)
        #expect(mail.values("Subject") == ["Hi Bcc: eve@example.com"])
        #expect(throws: EmailMessage.Fault("bad_address")) {
            try MailText.make(to: "ada@example.com\(separator)Bcc: eve@example.com")
        }
        #expect(throws: CredentialFault.self) { try EmailSender("A\(separator)B <a@example.com>") }
        #expect(throws: EmailMessage.Fault.self) {
            try MailText.make(unsubscribe: "https://example.com/\(separator)Bcc: eve@example.com")
        }
    }

    @Test(
        "an invalid address gets no mail",
        arguments: [
            "", "ada", "@example.com", "ada@", "ada@@example.com", "a b@example.com", "<ada@example.com>",
            "ada@exa,mple",
            "\"ada\"@example.com", ".ada@example.com", "ada@example..com", "ädä@example.com",
            String(repeating: "a", count: 65) + "@example.com",
        ])
    func badAddress(address: String) {
        #expect(throws: EmailMessage.Fault("bad_address")) { try MailText.make(to: address) }
    }

    @Test("any body survives encoding in short ASCII lines")
    func body() throws {
        let text =
            ".\n..dots\r\nblank at the end \n\ttab\nZürich = 🎉\n" + String(repeating: "long ", count: 60) + "\rend"
        let mail = try MailText.make {
            $0.title = ""
            $0.body = text
        }
        let expected = text.replacing("\r\n", with: "\n").replacing("\r", with: "\n").replacing("\n", with: "\r\n")
        #expect(mail.parts["text/plain"] == expected)
        let lines = mail.raw.split(separator: "\r\n", omittingEmptySubsequences: false)
        #expect(lines.allSatisfy { $0.utf8.count <= 78 && $0.last != " " && $0.last != "\t" })
        #expect(!mail.raw.replacing("\r\n", with: "").utf8.contains { $0 == 10 || $0 == 13 })
    }

    @Test("without a template the page has title, body and link, with markup escaped")
    func layout() throws {
        let mail = try MailText.make(unsubscribe: "https://example.com/u") {
            $0.title = "<b>Paid</b>"
            $0.body = "One & two\n\nThree \"quoted\""
            $0.extras.url = "https://example.com/i?a=1&b=2"
        }
        let html = try #require(mail.parts["text/html"])
        #expect(html.contains("&lt;b&gt;Paid&lt;/b&gt;") && !html.contains("<b>"))
        #expect(html.contains("One &amp; two</p>") && html.contains("Three &quot;quoted&quot;</p>"))
        #expect(html.contains(#"<a href="https://example.com/i?a=1&amp;b=2""#))
        #expect(html.contains(#"<a href="https://example.com/u""#))
        #expect(html.contains("text-align:start"), "Arabic and Hebrew start on the right")
        let text = try #require(mail.parts["text/plain"])
        #expect(text.contains("https://example.com/i?a=1&b=2"))
        #expect(text.hasSuffix("-- \r\nUnsubscribe: https://example.com/u"))
        let inner = try MailText.make { $0.extras.url = "app://invoice/9" }
        #expect(inner.parts["text/html"]?.contains("app://") == false)
    }

    @Test(
        "Carillon's own words are in the user's language, with the type's title",
        arguments: [
            ("de-AT", "Rechnungen", "Öffnen", "E-Mails zu „Rechnungen“ abbestellen", "de"),
            ("pt_BR", nil, "Abrir", "Cancelar inscrição", "pt"),
            ("nl", "<Facturen>", "Open", "Stop e-mail about “<Facturen>”", "en"),
        ] as [(String, String?, String, String, String)])
    func languages(locale: String, title: String?, open: String, exit: String, language: String) throws {
        let url = "https://example.com/u"
        let mail = try MailText.make(unsubscribe: url, words: (locale, title)) { $0.extras.url = url }
        #expect(try #require(mail.parts["text/plain"]).hasSuffix("-- \r\n\(exit): \(url)"))
        let html = try #require(mail.parts["text/html"])
        #expect(html.contains(">\(open)</a>") && html.contains(#"<p lang="\#(language)" dir="auto""#))
        #expect(html.contains(">\(exit.htmlEscaped)</a>"))
    }

    @Test("the job's or template's texts take precedence")
    func given() throws {
        let mail = try MailText.make {
            $0.extras.platform = Array(
                #"{"email":{"subject":"Own","text":"Plain","html":"<p>Rich</p>","reply_to":"help@example.com"}}"#.utf8)
        }
        #expect(mail.values("Subject") == ["Own"])
        #expect(mail.values("Reply-To") == ["help@example.com"])
        #expect(mail.parts == ["text/plain": "Plain", "text/html": "<p>Rich</p>"])
        let injected = try MailText.make {
            $0.extras.platform = Array(
                #"{"email":{"subject":"Own\r\nBcc: e@x.y","reply_to":"a@b.c\r\nBcc: e@x.y"}}"#.utf8)
        }
        #expect(injected.values("Bcc").isEmpty && injected.values("Reply-To").isEmpty)
    }

    @Test("keeps stored JSON that is beyond the limits of a new job")
    func earlierLimits() throws {
        let marks = "a" + String(repeating: "\u{300}", count: 65)
        let mail = try MailText.make {
            $0.extras.platform = Array(#"{"apns":{"thread_id":"\#(marks)"},"email":{"subject":"Own"}}"#.utf8)
        }
        #expect(mail.values("Subject") == ["Own"])
    }

    @Test("a sender may have a name")
    func senders() throws {
        for (text, field) in [
            ("notices@example.com", "notices@example.com"),
            (" <notices@example.com> ", "notices@example.com"),
            (#"Ring "the" bell <n@example.com>"#, #""Ring \"the\" bell" <n@example.com>"#),
            (#""Quoted, name" <n@example.com>"#, #""Quoted, name" <n@example.com>"#),
            ("Zürich <n@example.com>", "=?utf-8?B?WsO8cmljaA==?= <n@example.com>"),
        ] {
            #expect(try MailText.make(from: text).values("From") == [field])
        }
        for text in [
            "", "Carillon", "a@b@c.d", "A <a@example.com", "A <a@example.com> b", "a@example.com, b@example.com",
        ] {
            #expect(throws: CredentialFault.self, "\(text)") { try EmailSender(text) }
        }
    }
}
