// Carillon · HeavyRequestMiddleware.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
package import Hummingbird

/// Takes requests with large bodies off the event loop, whose sockets would wait while they are read and checked.
package struct HeavyRequestMiddleware: RouterMiddleware {
    package typealias Context = APIContext

    /// Bytes of JSON that are parsed within a fraction of a millisecond.
    private static let lightest = 32 * 1024

    package func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        guard Self.isHeavy(request) else { return try await next(request, context) }
        return try await withTaskExecutorPreference(globalConcurrentExecutor) { try await next(request, context) }
    }

    private static func isHeavy(_ request: Request) -> Bool {
        if let length = request.headers[.contentLength] { return (Int(length) ?? .max) > Self.lightest }
        return request.headers[.transferEncoding] != nil
    }
}
