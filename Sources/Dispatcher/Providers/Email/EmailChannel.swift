// Carillon · EmailChannel.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// E-mail by one relay, from one address.
package struct EmailChannel: ProviderChannel {
    /// Shorter than the time that a dispatcher has to stop, so that what it has is settled.
    private static let patience: Duration = .seconds(50)

    package let provider = Provider.email
    package let app: String
    private let sender: EmailSender
    private let client: MailClient
    private let timeout: Duration?
    private let unsubscribe: @Sendable (Notification) -> String?

    /// - Parameter unsubscribe: the URL at which one click stops mail such as this; nil for none.
    package init(
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
            timeout: self.timeout ?? Self.patience, priority: TransferPriority(message.lane))
        switch await self.client.send(request) {
        case .answered(let reply):
            // The address is the recipient's own affair.
            let said = "\(reply.code) \(reply.text)".replacing(mail.recipient, with: "…")
            return ProviderReply(.answered(EmailAnswer.read(reply)), transcript: said)
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

    /// Greets the relay, with STARTTLS and the login, and hangs up.
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
