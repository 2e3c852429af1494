// Carillon · Middleware.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import HTTPTypes
import Hummingbird
import Logging

/// Finds out who calls; a credential that is given must be good.
package struct IdentityMiddleware: RouterMiddleware {
    package typealias Context = APIContext

    let credentials: CredentialResolver
    /// `.canonical`, or `.compatible` for paths of existing clients.
    let accepting: CredentialKinds

    package init(credentials: CredentialResolver, accepting: CredentialKinds) {
        self.credentials = credentials
        self.accepting = accepting
    }

    package func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        var context = context
        do throws(TokenFault) {
            context.caller = try await self.credentials.caller(
                PresentedCredentials(request),
                accepting: self.accepting
            )
        } catch {
            throw Problem(error)
        }
        guard context.caller != nil else { throw Problem(.unauthorized, "a bearer token is required") }
        return try await next(request, context)
    }
}

extension PresentedCredentials {
    private static let fetchSiteName = HTTPField.Name("Sec-Fetch-Site")

    /// Those of a request.
    init(_ request: Request) {
        self.init()
        self.authorization = request.headers[values: .authorization]
        self.cookies = request.headers[values: .cookie]
        self.origin = request.headers[.origin]
        self.fetchSite = Self.fetchSiteName.flatMap { request.headers[$0] }
        self.isUnsafe = request.method != .get && request.method != .head
    }
}

/// Turns every error into a problem document; what is our own fault is logged and told without details.
package struct ProblemMiddleware: RouterMiddleware {
    package typealias Context = APIContext

    package func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        do {
            return try await next(request, context)
        } catch {
            return try Self.problem(error, request, context).response(from: request, context: context)
        }
    }

    /// What to tell the caller about an error; one of our own is logged.
    package static func problem(_ error: any Error, _ request: Request, _ context: APIContext) -> Problem {
        switch error {
        case let problem as Problem: return problem
        case let error as HTTPError: return Problem(error.status, error.body ?? error.status.reasonPhrase)
        default:
            context.logger.error(
                "request failed", metadata: ["error": "\(error)", "http.path": "\(context.loggedPath)"])
            return self.problem(error)
        }
    }

    private static func problem(_ error: any Error) -> Problem {
        switch error {
        case is RedisError: Problem(.serviceUnavailable, "Redis is out of reach", retryAfter: 2)
        case let error as PostgresError where error.code != .server && error.code != .decoding:
            Problem(.serviceUnavailable, "PostgreSQL is out of reach", retryAfter: 2)
        default: Problem(.internalServerError, "something went wrong; the log tells what")
        }
    }
}
