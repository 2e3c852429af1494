// Carillon · UnsubscribeRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import NIOCore
import Protocols
import Storage

/// One-click unsubscribe for mail programs (RFC 8058) and for people: `/v1/unsubscribe`, without a login.
struct UnsubscribeRoutes {
    private static let largestBody = 4_096

    let services: APIServices

    func add(to router: Router<APIContext>) {
        router.get("v1/unsubscribe", use: self.page)
        router.post("v1/unsubscribe", use: self.unsubscribe)
    }

    private func target(_ request: Request) throws -> UnsubscribeLinks.Target {
        var query = QueryFields(request, allowing: ["token"])
        let token = query.text("token", limit: UnsubscribeLinks.longestToken, isRequired: true)
        try query.finish()
        guard let links = self.services.unsubscribeLinks else {
            throw Problem(.notFound, "there are no such links here: AUTH_JWT_SECRET is not set")
        }
        guard let token, let target = links.target(of: token) else {
            query.fault("token", "is not one of ours")
            try query.finish()
            throw Problem(.badRequest, "token is not one of ours")
        }
        return target
    }

    /// Asks first: mail programs that only look at links must not unsubscribe anyone.
    private func page(_ request: Request, _ context: APIContext) async throws -> Response {
        let target = try self.target(request)
        let texts = Texts(request)
        let all = "<button class=\"plain\" name=\"scope\" value=\"all\">\(texts.stopAll)</button>"
        var choices = ["<p class=\"hint\">\(texts.explanation)</p>"]
        if let type = target.type {
            let name = HTMLPage.escaped(Self.readable(type))
            choices += [
                "<button class=\"primary\" name=\"scope\" value=\"type\">\(texts.stopType(name))</button>", all,
                "<p class=\"hint\">\(texts.type): <code>\(HTMLPage.escaped(type))</code></p>",
            ]
        } else {
            choices.append(all)
        }
        return HTMLPage.response(
            title: texts.question,
            language: texts.language,
            body: """
                <form method="post">
                <input type="hidden" name="List-Unsubscribe" value="One-Click">
                \(choices.joined(separator: "\n"))
                </form>
                """
        )
    }

    private func unsubscribe(_ request: Request, _ context: APIContext) async throws -> Response {
        let target = try self.target(request)
        let isAll = try await self.isForAll(request)
        let texts = Texts(request)
        try await self.services.preferences.stopEmail(user: target.user, type: isAll ? nil : target.type)
        let name = isAll ? nil : target.type.map { HTMLPage.escaped(Self.readable($0)) }
        let done = name.map { texts.stoppedType($0) } ?? texts.stoppedAll
        return HTMLPage.response(
            title: texts.done,
            language: texts.language,
            body: "<p>\(done)</p><p class=\"hint\">\(texts.wayBack)</p>"
        )
    }

    /// A type's name as people read it: `invoice_created` and `InvoiceCreated` are `Invoice created`.
    private static func readable(_ type: String) -> String {
        var text = ""
        var wasLowercase = false
        for character in type {
            let isSeparator = !(character.isLetter || character.isNumber)
            if isSeparator || character.isUppercase && wasLowercase, !text.isEmpty, text.last != " " {
                text.append(" ")
            }
            if !isSeparator { text += text.isEmpty ? character.uppercased() : character.lowercased() }
            wasLowercase = character.isLowercase || character.isNumber
        }
        return text.isEmpty ? type : text
    }

    /// Reads the form: whether it asks to stop all e-mail.
    ///
    /// - Throws: ``Problem`` if it is not the form of a mail program or of the page.
    private func isForAll(_ request: Request) async throws -> Bool {
        let buffer: ByteBuffer
        do {
            buffer = try await request.body.collect(upTo: Self.largestBody)
        } catch is NIOTooManyBytesError {
            throw Problem(.contentTooLarge, "the body exceeds \(Self.largestBody) bytes")
        }
        let text = String(buffer: buffer)
        if request.headers[.contentType]?.lowercased().hasPrefix("multipart/form-data") == true {
            // RFC 8058 lets programs choose either form; of this one only the one field is looked for.
            if text.contains("name=\"List-Unsubscribe\""), text.contains("One-Click") { return false }
        } else if let form = try? RequestQuery(text), form["List-Unsubscribe"] == "One-Click" {
            return form["scope"] == "all"
        }
        let reason = "must be One-Click (RFC 8058 section 3.2)"
        throw Problem(
            .unprocessableContent, "List-Unsubscribe \(reason)", faults: [JobFault("List-Unsubscribe", reason)])
    }
}

extension UnsubscribeRoutes {
    /// The page's own words, in the language that the browser asks for; English if there is none of it.
    private struct Texts {
        let language: String
        let question: String
        let explanation: String
        let type: String
        let stopAll: String
        let done: String
        let stoppedAll: String
        let wayBack: String
        private let quotes: (String, String)
        private let stop: (String, String)
        private let stopped: (String, String)

        func stopType(_ name: String) -> String { self.sentence(self.stop, name) }
        func stoppedType(_ name: String) -> String { self.sentence(self.stopped, name) }

        private func sentence(_ parts: (String, String), _ name: String) -> String {
            parts.0 + self.quotes.0 + name + self.quotes.1 + parts.1
        }

        init(_ request: Request) {
            // The order of the header counts and its weights do not: browsers send the best language first.
            let wanted = (request.headers[.acceptLanguage] ?? "").lowercased().split(separator: ",").map { part in
                part.drop { $0 == " " }.prefix { $0.isLetter }
            }
            switch wanted.first(where: { ["en", "de", "fr"].contains($0) }) {
            case "de":
                self.language = "de"
                self.question = "E-Mails abbestellen?"
                self.explanation = "Ihre Mitteilungen in der App und auf Ihren Geräten bleiben, wie sie sind."
                self.type = "Art der Mitteilung"
                self.stopAll = "Alle E-Mails abbestellen"
                self.done = "Abbestellt"
                self.stoppedAll = "Sie bekommen keine E-Mails mehr, außer solchen, die sein müssen."
                self.wayBack = "In den Einstellungen Ihrer Mitteilungen können Sie das jederzeit ändern."
                self.quotes = ("„", "“")
                self.stop = ("E-Mails zu ", " abbestellen")
                self.stopped = ("Sie bekommen keine E-Mails mehr zu ", ".")
            case "fr":
                self.language = "fr"
                self.question = "Ne plus recevoir d’e-mails ?"
                self.explanation = "Vos notifications dans l’application et sur vos appareils restent inchangées."
                self.type = "Type de notification"
                self.stopAll = "Arrêter tous les e-mails"
                self.done = "Désabonné"
                self.stoppedAll = "Vous ne recevrez plus d’e-mails, sauf ceux qui sont indispensables."
                self.wayBack = "Vous pouvez revenir sur ce choix dans les réglages de vos notifications."
                self.quotes = ("« ", " »")
                self.stop = ("Arrêter les e-mails ", "")
                self.stopped = ("Vous ne recevrez plus d’e-mails ", ".")
            default:
                self.language = "en"
                self.question = "Unsubscribe from e-mail?"
                self.explanation = "Your notifications in the app and on your devices stay as they are."
                self.type = "Type of notification"
                self.stopAll = "Stop all e-mail"
                self.done = "Unsubscribed"
                self.stoppedAll = "You get no more e-mail, except what is required."
                self.wayBack = "You can change this at any time in your notification settings."
                self.quotes = ("“", "”")
                self.stop = ("Stop e-mail about ", "")
                self.stopped = ("You get no more e-mail about ", ".")
            }
        }
    }
}
