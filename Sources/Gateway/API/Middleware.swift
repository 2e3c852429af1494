// Carillon · Middleware.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import Hummingbird
import Logging
import Postgres
import Redis
import Services

/// Finds out who calls; a credential that is given must be good.
struct IdentityMiddleware: RouterMiddleware {
    typealias Context = APIContext

    let credentials: CredentialResolver
    /// `.canonical`, or `.compatible` for paths of existing clients.
    let accepting: CredentialKinds

    func handle(
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
struct ProblemMiddleware: RouterMiddleware {
    typealias Context = APIContext

    func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        do {
            return try await next(request, context)
        } catch let problem as Problem {
            return try problem.response(from: request, context: context)
        } catch let error as HTTPError {
            return try Problem(error.status, error.body ?? error.status.reasonPhrase)
                .response(from: request, context: context)
        } catch {
            context.logger.error("request failed", metadata: ["error": "\(error)", "path": "\(request.uri.path)"])
            return try Self.problem(error).response(from: request, context: context)
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
