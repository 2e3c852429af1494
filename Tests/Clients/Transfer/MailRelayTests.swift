// Carillon · MailRelayTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Testing

@Suite("Mail relay URLs", .timeLimit(.minutes(10)))
struct MailRelayTests {
    @Test(
        "a URL gives host, port and EHLO name; its login is never shown",
        arguments: [
            ("smtp://relay.example", "smtp://relay.example:587/"),
            ("SMTPS://relay.example", "smtps://relay.example:465/"),
            ("smtp://relay.example:25/me.example", "smtp://relay.example:25/me.example"),
            ("smtp://u:p%40%2F%3A@relay.example/", "smtp://relay.example:587/"),
            ("smtp://user%40example.com:a:b@relay.example:2525", "smtp://relay.example:2525/"),
            ("smtp://[::1]:25", "smtp://[::1]:25/"),
            ("smtps://u:@192.0.2.1", "smtps://192.0.2.1:465/"),
        ])
    func good(text: String, url: String) throws {
        let relay = try MailRelay(url: text)
        #expect(relay.url == url)
        #expect("\(relay)" == url)
    }

    @Test("a separate password needs a URL with only a user")
    func password() throws {
        #expect(
            try MailRelay(url: "smtp://u%40example@relay.example", password: "p:%40/").url
                == "smtp://relay.example:587/")
        for text in [
            "smtp://relay.example", "smtp://u:secret@relay.example", "smtp://u:@relay.example", "smtp://@relay.example",
        ] {
            do throws(FieldFault) {
                let relay = try MailRelay(url: text, password: "secret")
                Issue.record("\(relay)")
            } catch {
                #expect(error.description.contains("only the user") && !error.description.contains("secret"))
            }
        }
    }

    @Test(
        "a / in the login is named, and not taken for a path",
        arguments: ["smtp://u:ab/secret@relay.example:587", "smtp://u:25/secret@relay.example", "smtps://u/secret:p@h"])
    func slash(text: String) {
        do throws(FieldFault) {
            let relay = try MailRelay(url: text)
            Issue.record("\(relay)")
        } catch {
            #expect(error.description.contains("%2F") && error.description.contains("SMTP_PASSWORD_FILE"))
            #expect(!error.description.contains("secret"))
        }
    }

    @Test(
        "an invalid relay is refused, without quoting the URL",
        arguments: [
            "", "relay.example", "https://relay.example", "smtp://", "smtp://:25", "smtp://relay.example:0",
            "smtp://relay.example:x", "smtp://relay.example:70000", "smtp://secret@relay.example",
            "smtp://:secret@relay.example", "smtp://u:%zz@relay.example", "smtp://u:%00secret@relay.example",
            "smtp://u:%0Dsecret@relay.example", "smtp://relay.example?secret", "smtp://relay.example#secret",
            "smtp://relay example", "smtp://relay.example/a/b", "smtp://rëlay.example", "smtp://[::1", "smtp://u:p@",
        ])
    func bad(text: String) {
        do throws(FieldFault) {
            let relay = try MailRelay(url: text)
            Issue.record("\(relay)")
        } catch {
            #expect(!error.description.isEmpty && !error.description.contains("secret"))
        }
    }
}
