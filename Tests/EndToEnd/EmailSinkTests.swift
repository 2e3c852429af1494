// Carillon · EmailSinkTests.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import Support
import Testing

/// Our mail as read by aiosmtpd and Python's message parser.
@Suite(.serialized, .timeLimit(.minutes(10)), .enabled(if: PythonClient.has("aiosmtpd")))
struct EmailSinkTests {
    @Test("subject, text, addresses and encodings arrive unchanged")
    func reads() async throws {
        let certificate = try await TestCertificate.make()
        try await Stack.with { stack in
            let sink = try await PythonClient.start(
                "smtp_sink.py", [certificate.certificateFile, certificate.keyFile], in: stack.directory.path)
            let port = try await sink.wait(for: "ready ").dropFirst("ready ".count)
            let catalog = try stack.catalog("types: {receipt: {channels: [email]}}")
            let gateway = try await stack.startGateway(environment: catalog)
            var settings = catalog.merging(stack.mailSettings(gateway: gateway)) { $1 }
            settings["SMTP_URL"] = "smtp://ada:p%40ss%2Fword@127.0.0.1:\(port)/client.example"
            settings["SMTP_FROM"] = "Zürich, 東京 <notices@example.com>"
            settings["PROVIDER_CA"] = certificate.authorityFile
            _ = try await stack.startDispatcher(environment: settings)
            try await stack.setAddress("ada@example.com", of: "ada", by: gateway)
            let title = "Grüße 🎉 " + String(repeating: "sehr lang ", count: 15) + "Ende"
            let body = ".\n.punkt\n\n" + String(repeating: "ä", count: 200) + " = und blank \nEnde"
            try await stack.append([("user", "ada"), ("type", "receipt"), ("title", title), ("body", body)])
            let line = try await sink.wait(for: "mail ")
            let mail = try JSONParser.parse(Array(line.utf8.dropFirst("mail ".utf8.count)))
            #expect(mail["tls"]?.bool == true)
            #expect(mail["sender"]?.string == "notices@example.com")
            #expect(mail["recipients"]?.array?.compactMap(\.string) == ["ada@example.com"])
            #expect(mail["from"]?.array?.first?.array?.compactMap(\.string) == ["Zürich, 東京", "notices@example.com"])
            #expect(mail["fields"]?["subject"]?.string == title)
            #expect(mail["defects"]?.array?.isEmpty == true, "\(mail["defects"].debugDescription)")
            #expect(mail["best"]?.string == "text/html")
            let text = try #require(mail["texts"]?["text/plain"]?.string)
            #expect(text.replacing("\r\n", with: "\n").hasPrefix("\(title)\n\n\(body)\n\n-- \nUnsubscribe: http"))
            #expect(mail["texts"]?["text/html"]?.string?.contains(".punkt") == true)
            try await eventually("the sink's name for it is on record") {
                try await stack.query("SELECT provider_id FROM carillon.delivery_attempts WHERE kind = 'email'")
                    .first?.optionalText(0)
                    == "SINK1"
            }
        }
    }
}
