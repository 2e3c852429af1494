// Carillon · RequestMiddleware.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import Hummingbird
import Logging

/// Gives every request an id that its answer and all log lines about it carry, and counts what was answered.
package struct RequestMiddleware: RouterMiddleware {
    package typealias Context = APIContext

    private static let header = HTTPField.Name("X-Request-ID")
    private static let longestID = 128

    package init() {}

    package func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        let start = ContinuousClock.now
        let id = Self.id(given: Self.header.flatMap { request.headers[$0] })
        var context = context
        context.logger[metadataKey: "hb.request.id"] = "\(id)"
        context.logger[metadataKey: "request.id"] = "\(id)"
        do {
            var response = try await next(request, context)
            if let name = Self.header { response.headers[name] = id }
            self.note(request, response.status, since: start, context)
            return response
        } catch {
            self.note(request, .internalServerError, since: start, context)
            throw error
        }
    }

    private func note(
        _ request: Request,
        _ status: HTTPResponse.Status,
        since start: ContinuousClock.Instant,
        _ context: APIContext
    ) {
        let duration = ContinuousClock.now - start
        CallMetrics.count(status, duration)
        let (seconds, attoseconds) = duration.components
        let level: Logger.Level = status.kind == .serverError ? .warning : .debug
        // The query may hold a credential, as may a part of the path: neither is ever logged.
        context.logger.log(
            level: level,
            "request answered",
            metadata: [
                "http.method": "\(request.method.rawValue)", "http.path": "\(context.loggedPath)",
                "http.status": "\(status.code)",
                "duration.ms": "\(seconds * 1_000 + attoseconds / 1_000_000_000_000_000)",
            ]
        )
    }

    /// The caller's own id where it can stand in a log line as it is, or a random one.
    static func id(given: String?) -> String {
        if let given, (1...Self.longestID).contains(given.utf8.count), given.utf8.allSatisfy(Self.isPlain) {
            return given
        }
        let random = String(UInt64.random(in: .min ... .max), radix: 16)
        return String(repeating: "0", count: 16 - random.count) + random
    }

    private static func isPlain(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: "-_.:/+=~@".utf8.contains(byte)
        }
    }
}

/// Answers 404 to other spellings of a path, which the router would take for the path itself.
///
/// A proxy that hides a path compares its spelling. So no path has an empty segment, and the paths
/// of operators have no slash at their end.
struct SpellingMiddleware: RouterMiddleware {
    typealias Context = APIContext

    private static let exact: Set<String> = ["/metrics/", "/readyz/", "/healthz/"]

    func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        let path = request.uri.path
        guard !path.contains("//"), !Self.exact.contains(path) else { throw Problem.notFound }
        return try await next(request, context)
    }
}
