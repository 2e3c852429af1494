// Carillon · Email.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// E-mail through an SMTP relay.
package enum Email: ProviderKind {
    package static let provider = Provider.email
    package static let rules = EmailAnswer.rules
    package static let files = ["password_file"]
    package static let settings = ["url", "password_file", "from"]

    package static func channel(
        app: String,
        settings: [String: String],
        shape: PushShape,
        context: ChannelContext
    ) async throws(CredentialFault) -> any ProviderChannel {
        let url = try settings.required("url")
        let password = try CredentialFault.of("password_file") {
            try settings["password_file"].map { try context.secret($0) }
        }
        let relay = try CredentialFault.of("url") { try MailRelay(url: url, password: password) }
        let from = try settings.required("from")
        let sender = try CredentialFault.of("from") { try EmailSender(from) }
        var configuration = MailConfiguration()
        configuration.caFile = context.caFile
        do throws(TransferError) {
            let client = try MailClient(relay: relay, configuration: configuration, logger: context.logger)
            return EmailChannel(
                app: app, sender: sender, client: client, timeout: context.timeout, unsubscribe: context.unsubscribe)
        } catch {
            throw CredentialFault("cannot be used: \(error)", setting: "url")
        }
    }
}

/// E-mail through one relay from one address.
package struct EmailChannel: ProviderChannel {
    /// Shorter than the dispatcher's shutdown limit, so that messages in flight are settled.
    static let patience: Duration = .seconds(50)

    package let provider = Provider.email
    package let app: String
    private let sender: EmailSender
    private let client: MailClient
    private let timeout: Duration?
    private let unsubscribe: @Sendable (Notification) -> String?

    /// - Parameter unsubscribe: returns the one-click unsubscribe URL; nil for none.
    init(
        app: String,
        sender: EmailSender,
        client: MailClient,
        timeout: Duration? = nil,
        unsubscribe: @escaping @Sendable (Notification) -> String?
    ) {
        self.app = app
        self.sender = sender
        self.client = client
        self.timeout = timeout
        self.unsubscribe = unsubscribe
    }

    package func send(_ message: PushMessage, to device: Device) async -> ProviderReply {
        let mail: EmailMessage
        do throws(EmailMessage.Fault) {
            let link = message.isRefusable ? self.unsubscribe(message.notification) : nil
            mail = try EmailMessage(message, from: self.sender, to: device.token, unsubscribe: link)
        } catch {
            return ProviderReply(.unsendable(reason: error.description), transcript: "not sent")
        }
        let request = MailRequest(
            sender: mail.sender, recipient: mail.recipient, content: mail.content,
            timeout: self.timeout ?? Self.patience, priority: TransferPriority(message.lane),
            mayStart: message.mayStart)
        switch await self.client.send(request) {
        case .answered(let reply):
            // The transcript leaves out the recipient's address.
            let transcript = "\(reply.code) \(reply.text)".hiding(mail.recipient)
            return ProviderReply(.answered(EmailAnswer.read(reply)), transcript: transcript)
        case .unanswered(let failure) where failure.reason == .fenced:
            return ProviderReply(.fenced, transcript: "not sent")
        case .unanswered(let failure) where failure.neverHadTurn:
            return ProviderReply(.noTurn, transcript: "not sent")
        case .unanswered(let failure):
            if let answer = EmailAnswer.read(failure) {
                return ProviderReply(.answered(answer), transcript: "\(failure)")
            }
            return ProviderReply(
                .unanswered(reason: failure.reason.rawValue, mayHaveBeenSent: failure.mayHaveBeenSent),
                transcript: "\(failure)")
        }
    }

    /// Connects to the relay with STARTTLS, logs in and disconnects.
    package func probe() async -> [ProviderProbe] {
        let fault: String? =
            switch await self.client.greet() {
            case .answered(let reply) where (200..<300).contains(reply.code): nil
            case .answered(let reply): "answers \(reply)"
            case .unanswered(let failure): failure.reason.rawValue
            }
        return [ProviderProbe(self.client.relay.description, fault: fault)]
    }
}

/// The sender of mail: `notices@example.com` or `Example <notices@example.com>`.
struct EmailSender: Sendable, Equatable {
    private static let longestName = 128

    let name: String?
    let address: EmailAddress

    /// - Throws: ``CredentialFault``, worded to follow a setting's name.
    init(_ text: String) throws(CredentialFault) {
        let form = "must be notices@example.com or Example <notices@example.com>"
        guard let bracket = text.firstIndex(of: "<") else {
            guard let address = EmailAddress(text.trimmingBlanks) else { throw CredentialFault(form) }
            (self.name, self.address) = (nil, address)
            return
        }
        let rest = text[text.index(after: bracket)...].trimmingBlanks
        guard rest.last == ">", let address = EmailAddress(String(rest.dropLast())) else { throw CredentialFault(form) }
        var name = text[..<bracket].trimmingBlanks
        if name.count >= 2, name.first == "\"", name.last == "\"" { name = String(name.dropFirst().dropLast()) }
        guard name.unicodeScalars.count <= Self.longestName,
            name.unicodeScalars.allSatisfy({ Self.isAllowed($0) })
        else {
            throw CredentialFault("has a display name with control characters or over \(Self.longestName) characters")
        }
        (self.name, self.address) = (name.isEmpty ? nil : name, address)
    }

    private static func isAllowed(_ scalar: Unicode.Scalar) -> Bool {
        let isControl = scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value)
        return !isControl && scalar.value != 0x2028 && scalar.value != 0x2029
    }
}

extension StringProtocol {
    /// The text without spaces and tabs at both ends.
    var trimmingBlanks: String {
        let isBlank = { (character: Character) in character == " " || character == "\t" }
        guard let first = self.firstIndex(where: { !isBlank($0) }), let last = self.lastIndex(where: { !isBlank($0) })
        else { return "" }
        return String(self[first...last])
    }
}
