// Carillon · MailEndpoint.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import NIOHPACK

/// What a relay decides: who may send, whom it knows, and which messages are well made.
struct MailEndpoint: Sendable {
    static let user = "carillon"
    /// With what has to be percent-encoded in a URL.
    static let password = "pass:word/1"
    /// What EHLO announces as SIZE.
    static let sizeLimit = 10 * 1_024 * 1_024

    private let faults: MailFaults
    private let log: ReceivedLog
    private let configuration: SandboxConfiguration

    init(faults: MailFaults, log: ReceivedLog, _ configuration: SandboxConfiguration) {
        self.faults = faults
        self.log = log
        self.configuration = configuration
    }

    var relay: SandboxConfiguration.Relay { self.configuration.relay }

    func mayLogIn(user: String, password: String) -> Bool {
        user == Self.user && password == Self.password
    }

    func verdict(sender: String) -> MailVerdict { self.noted(self.faults.verdict(for: sender, at: .sender)) }

    func verdict(recipient: String) -> MailVerdict { self.noted(self.faults.verdict(for: recipient, at: .recipient)) }

    /// Takes a message, unless it is faulty or its recipient has a fault.
    func verdict(sender: String, recipient: String, content: [UInt8]) -> MailVerdict {
        let mail: ParsedMail
        do {
            mail = try ParsedMail(content)
        } catch {
            return self.noted(.refuse("554 5.6.0 \(error.reason)"))
        }
        let verdict = self.faults.verdict(for: recipient, at: .content)
        guard verdict == .accept || verdict == .acceptLate else { return self.noted(verdict) }
        var headers = HPACKHeaders()
        for field in mail.fields { headers.add(name: field.name.lowercased(), value: field.value) }
        let members: [(String, String?)] = [
            ("sender", sender), ("subject", mail.subject), ("text", mail.part("text/plain")),
            ("html", mail.part("text/html")),
        ]
        let payload = JSONText.object(members.compactMap { name, value in value.map { (name, $0) } })
        self.log.accept(
            .email, token: recipient, headers: headers, payload: Array(payload.utf8), at: self.configuration.clock())
        return verdict
    }

    private func noted(_ verdict: MailVerdict) -> MailVerdict {
        if case .refuse(let reply) = verdict { self.log.refuse(.email, name: String(reply.prefix(3))) }
        if case .refuseAndClose(let reply) = verdict { self.log.refuse(.email, name: String(reply.prefix(3))) }
        return verdict
    }
}
