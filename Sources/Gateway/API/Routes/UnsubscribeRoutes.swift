// Carillon · UnsubscribeRoutes.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import Hummingbird
import Model
import NIOCore
import Stores

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

    /// Asks; programs that only look at links must not unsubscribe anyone.
    private func page(_ request: Request, _ context: APIContext) async throws -> Response {
        let target = try self.target(request)
        let choices =
            if let type = target.type {
                """
                <p><button name="scope" value="type">Stop e-mail of the kind \(HTMLPage.escaped(type))</button></p>
                <p><button name="scope" value="all">Stop all e-mail</button></p>
                """
            } else {
                """
                <p><button name="scope" value="all">Stop all e-mail</button></p>
                """
            }
        return HTMLPage.response(
            title: "Unsubscribe",
            body: """
                <form method="post">
                <input type="hidden" name="List-Unsubscribe" value="One-Click">
                \(choices)
                </form>
                """
        )
    }

    private func unsubscribe(_ request: Request, _ context: APIContext) async throws -> Response {
        let target = try self.target(request)
        let isAll = try await self.isForAll(request)
        try await self.services.preferences.stopEmail(user: target.user, type: isAll ? nil : target.type)
        return HTMLPage.response(title: "Unsubscribed", body: "<p>You will get no more of this e-mail.</p>")
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
        } else if let fields = PercentCoding.fields(text) {
            if fields.contains(where: { $0 == ("List-Unsubscribe", "One-Click") }) {
                return fields.contains { $0 == ("scope", "all") }
            }
        }
        let reason = "must be One-Click (RFC 8058 section 3.2)"
        throw Problem(
            .unprocessableContent, "List-Unsubscribe \(reason)", faults: [JobFault("List-Unsubscribe", reason)])
    }
}
