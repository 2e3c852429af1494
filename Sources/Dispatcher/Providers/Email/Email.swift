// Carillon · Email.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// E-mail through a relay, by SMTP.
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
        var password: String?
        if let path = settings["password_file"] {
            do throws(CredentialFault) {
                password = try context.secret(path)
            } catch {
                throw error.of("password_file")
            }
        }
        let relay: MailRelay
        do throws(MailRelay.Fault) {
            relay = try MailRelay(url: url, password: password)
        } catch {
            throw CredentialFault(error.description, setting: "url")
        }
        let from = try settings.required("from")
        let sender: EmailSender
        do throws(CredentialFault) {
            sender = try EmailSender(from)
        } catch {
            throw error.of("from")
        }
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
