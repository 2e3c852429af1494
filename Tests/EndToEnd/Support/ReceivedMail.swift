// Carillon · ReceivedMail.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Sandbox
import Support

@testable import Clients

/// A mail that the sandbox relay accepted.
struct ReceivedMail: Sendable {
    let recipient: String
    /// Header fields by lower-case name.
    let fields: [String: String]
    let sender: String
    let subject: String
    let text: String
    let html: String

    /// The one-click unsubscribe URL.
    var unsubscribe: String? {
        self.fields["list-unsubscribe"].map { String($0.dropFirst().dropLast()) }
    }
}

extension Stack {
    static let mailSender = "Carillon <notices@example.com>"

    /// Settings that send mail through the sandbox relay; links lead to `gateway`.
    func mailSettings(gateway: Gateway? = nil) -> [String: String] {
        var settings = ["SMTP_URL": self.sandbox.smtpURL, "SMTP_FROM": Self.mailSender]
        if let gateway { settings["PUBLIC_URL"] = "http://127.0.0.1:\(gateway.port)" }
        return settings
    }

    /// The received mails, oldest first.
    func mails() throws -> [ReceivedMail] {
        try self.sandbox.received().filter { $0.provider == .email }.map { message in
            let payload = try JSONParser.parse(message.payload)
            return ReceivedMail(
                recipient: message.token,
                fields: message.headers,
                sender: payload["sender"]?.string ?? "",
                subject: payload["subject"]?.string ?? "",
                text: payload["text"]?.string ?? "",
                html: payload["html"]?.string ?? ""
            )
        }
    }

    /// Waits for the first mail.
    func firstMail() async throws -> ReceivedMail {
        try await eventualValue("the mail is there") {
            // The relay of a busy machine may answer too late, and the next try is minutes away.
            try await self.makeDue(.email)
            return try self.mails().first
        }
    }

    /// Sets a user's address, and switches e-mail on for `type` if given.
    func setAddress(
        _ address: String,
        of user: String,
        wanting type: String? = nil,
        by gateway: Gateway
    ) async throws {
        try await gateway.set(#"{"email":"\#(address)"}"#, of: user)
        guard let type else { return }
        let token = Self.token(user: user)
        let preferences = try await gateway.call(
            .put, "/v1/preferences", token: token, json: #"{"types":[{"type":"\#(type)","email":true}]}"#)
        guard preferences.status == 200 else { throw FixtureError("preference not set: \(preferences.body)") }
    }

    /// Outcomes and reasons of a user's e-mail attempts, oldest first.
    func mailAttempts(user: String) async throws -> [String] {
        let rows = try await self.query(
            "SELECT outcome, reason FROM carillon.delivery_attempts WHERE user_id = $1 AND kind = 'email' ORDER BY at",
            .text(user))
        return try rows.map { row in
            let reason = try row.optionalText(1)
            return try row.text(0) + (reason.map { " \($0)" } ?? "")
        }
    }

    /// Outcomes and reasons of the attempts that ended a delivery, oldest first.
    func mailEnds(user: String) async throws -> [String] {
        Self.ends(try await self.mailAttempts(user: user))
    }

    /// The attempts that ended a delivery; a busy machine adds others.
    static func ends(_ attempts: [String]) -> [String] {
        attempts.filter { !$0.hasPrefix("retry ") && $0 != "skipped under_way" && $0 != "skipped already_accepted" }
    }
}
