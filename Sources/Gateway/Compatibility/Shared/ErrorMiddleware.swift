// Carillon · ErrorMiddleware.swift
// SPDX-License-Identifier: Apache-2.0

import API
import HTTPTypes
import Hummingbird
import Metrics
import NIOCore

/// Turns errors into the form that a system's clients read, and counts its calls, so that one can see who still calls.
struct ErrorMiddleware: RouterMiddleware {
    typealias Context = APIContext

    private let style: ErrorStyle
    private let answered: Counter
    private let refused: Counter
    private let failed: Counter

    init(style: ErrorStyle) {
        func counter(_ outcome: String) -> Counter {
            Counter(
                label: "carillon.compatibility.calls",
                dimensions: [("system", style.system), ("outcome", outcome)]
            )
        }
        self.style = style
        self.answered = counter("answered")
        self.refused = counter("refused")
        self.failed = counter("failed")
    }

    func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        do {
            let response = try await next(request, context)
            self.answered.increment()
            return response
        } catch {
            let problem = ProblemMiddleware.problem(error, request, context)
            let status = self.style.status(of: problem)
            (status.kind == .serverError ? self.failed : self.refused).increment()
            var headers: HTTPFields = [.contentType: "application/problem+json"]
            if status == .unauthorized { headers[.wwwAuthenticate] = "Bearer" }
            if let retryAfter = problem.retryAfter { headers[.retryAfter] = String(retryAfter) }
            return Response(
                status: status,
                headers: headers,
                body: ResponseBody(byteBuffer: ByteBuffer(bytes: self.style.body(of: problem)))
            )
        }
    }
}
