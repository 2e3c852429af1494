// Carillon · UnsubscribeRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import HTTPTypes
import Hummingbird
import NIOCore
import Protocols
import Storage

/// One-click unsubscribe for mail programs (RFC 8058) and people, without a login:
/// `/v1/unsubscribe`.
struct UnsubscribeRoutes {
    private static let largestBody = 4_096

    let users: UserServices
    /// The rate limit of users; nil for none.
    let callRate: UserRate?

    func add(to routes: Routes) {
        routes.get("v1/unsubscribe", Self.page, self.page)
        routes.post("v1/unsubscribe", Self.unsubscribe, self.unsubscribe)
    }

    private static let token: Fields = [
        "token": .text(UnsubscribeLinks.longestToken, pattern: "^[A-Za-z0-9_-]+$")(
            "The token of the link in an e-mail.")
    ]

    private func target(_ request: Request) throws -> UnsubscribeLinks.Target {
        // Mail relays and chats add parameters of their own to a link.
        let token = try RequestQuery(of: request)["token"]
        guard let links = self.users.unsubscribeLinks else {
            throw Problem(.notFound, "unsubscribe links are off: AUTH_JWT_SECRET is not set")
        }
        guard let token, let target = links.target(of: token) else {
            let reason = "is not a valid unsubscribe token; open the link in the e-mail again"
            throw Problem(.badRequest, faults: [JobFault("token", reason)])
        }
        return target
    }

    private static let page = Operation(
        "askUnsubscribe",
        "A page that asks whether to stop e-mail.",
        query: token,
        answers: [
            Answer(200, "The page.", .string, type: "text/html"),
            Answer(400, "The link is not valid; a page says so.", .string, type: "text/html"), 404,
        ])

    /// Asks for confirmation, because mail programs prefetch links.
    private func page(_ request: Request, _ context: APIContext) async throws -> Response {
        let texts = Self.texts(request)
        let target: UnsubscribeLinks.Target
        do {
            target = try self.target(request)
        } catch let problem as Problem where problem.status == .badRequest {
            return HTMLPage.response(
                title: texts.unsubscribe, language: texts.language, body: "<p>\(texts.refused)</p>",
                status: problem.status)
        }
        let all = "<button class=\"plain\" name=\"scope\" value=\"all\">\(texts.stopAll)</button>"
        var choices = ["<p class=\"hint\">\(texts.explanation)</p>"]
        if let type = target.type {
            let name = self.name(of: type, texts.language).htmlEscaped
            choices += [
                "<button class=\"primary\" name=\"scope\" value=\"type\">\(texts.stopType(name))</button>", all,
                "<p class=\"hint\">\(texts.type): <code>\(type.htmlEscaped)</code></p>",
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

    private static let unsubscribe = Operation(
        "unsubscribe",
        "Stops e-mail (RFC 8058).",
        query: token,
        body: .object([
            "List-Unsubscribe": .constant(.string("One-Click")),
            "scope?": .choice("type", "all"),
        ]),
        bodyTypes: ["application/x-www-form-urlencoded", "multipart/form-data"],
        answers: [Answer(200, "A confirmation page.", .string, type: "text/html"), 404, 429, 503])

    private func unsubscribe(_ request: Request, _ context: APIContext) async throws -> Response {
        let target = try self.target(request)
        try self.callRate?.requireRoom(for: target.user)
        let isAll = try await self.isForAll(request)
        let texts = Self.texts(request)
        try await self.users.preferences.stopEmail(user: target.user, type: isAll ? nil : target.type)
        let name = isAll ? nil : target.type.map { self.name(of: $0, texts.language).htmlEscaped }
        let done = name.map { texts.stoppedType($0) } ?? texts.stoppedAll
        return HTMLPage.response(
            title: texts.done,
            language: texts.language,
            body: "<p>\(done)</p><p class=\"hint\">\(texts.wayBack)</p>"
        )
    }

    /// Returns the texts of the page in the browser's language if available, else in English.
    private static func texts(_ request: Request) -> MailTexts {
        // Browsers send the best language first, so weights do not matter.
        let wanted = (request.headers[.acceptLanguage] ?? "").split(separator: ",")
        return MailTexts(languages: wanted.map { String($0.drop { $0 == " " }) })
    }

    /// Returns a type's title in the catalog, or its name for people: `invoice_created` and
    /// `InvoiceCreated` become `Invoice created`.
    private func name(of type: String, _ language: String) -> String {
        if let title = TypeWords(self.users.base.catalog, locales: [language]).title(ofType: type) { return title }
        let words = TypeTitle.text(type)
        return words.isEmpty ? type : String(words.prefix(1)) + words.dropFirst().lowercased()
    }

    /// Reads the form; true if the user stops all e-mail.
    ///
    /// - Throws: ``Problem`` if it is not the form of a mail program or of the page.
    private func isForAll(_ request: Request) async throws -> Bool {
        let text = String(buffer: try await request.completeBody(upTo: Self.largestBody))
        if request.headers[.contentType]?.lowercased().hasPrefix("multipart/form-data") == true {
            // RFC 8058 allows either form type; only one field matters here.
            if text.contains("name=\"List-Unsubscribe\""), text.contains("One-Click") { return false }
        } else if let form = try? RequestQuery(text), form["List-Unsubscribe"] == "One-Click" {
            return form["scope"] == "all"
        }
        let reason = "must be One-Click (RFC 8058 section 3.2)"
        throw Problem(
            .unprocessableContent, "List-Unsubscribe \(reason)", faults: [JobFault("List-Unsubscribe", reason)])
    }
}

/// An HTML page without scripts that loads only the gateway's style and icon, and cannot be framed.
enum HTMLPage {
    private static let policy = """
        default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'
        """
    /// The address contains the link's token, so it must not reach caches or other sites.
    private static let fields: [(name: String, value: String)] = [
        ("Content-Security-Policy", Self.policy), ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY"),
        ("Referrer-Policy", "no-referrer"), ("Cache-Control", "no-store"), ("X-Robots-Tag", "noindex"),
    ]

    /// - Parameters:
    ///   - language: a BCP 47 tag.
    ///   - body: HTML; escape untrusted text with `htmlEscaped`.
    static func response(
        title: String,
        language: String,
        body: String,
        status: HTTPResponse.Status = .ok
    ) -> Response {
        let page = """
            <!DOCTYPE html>
            <html lang="\(language)" dir="\(language == "ar" ? "rtl" : "ltr")">
            <head>
            <meta charset="utf-8">
            <meta name="viewport" content="width=device-width, initial-scale=1">
            <meta name="color-scheme" content="light dark">
            <title>\(title)</title>
            <link rel="icon" href="../web/icon.svg" type="image/svg+xml">
            <link rel="stylesheet" href="../web/page.css">
            </head>
            <body>
            <main class="card">
            <img src="../web/icon.svg" alt="" width="44" height="44">
            <h1>\(title)</h1>
            \(body)
            </main>
            </body>
            </html>

            """
        var headers: HTTPFields = [.contentType: "text/html; charset=utf-8"]
        for (name, value) in Self.fields {
            if let name = HTTPField.Name(name) { headers[name] = value }
        }
        return Response(status: status, headers: headers, body: ResponseBody(byteBuffer: ByteBuffer(string: page)))
    }
}
