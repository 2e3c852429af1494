// Carillon · ErrorMiddleware.swift
// SPDX-License-Identifier: Apache-2.0

import HTTPTypes
import Hummingbird
import Metrics

/// Turns errors into the form that a system's clients read, also those of methods and paths that it
/// does not have.
///
/// Counts the calls of each system, so that one can see who still calls.
struct ErrorMiddleware: RouterMiddleware {
    typealias Context = APIContext

    /// A system with its counters.
    private struct System: Sendable {
        let style: ErrorStyle
        let answered: Counter
        let refused: Counter
        let failed: Counter

        init(_ style: ErrorStyle) {
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
    }

    /// The segments of a path and the system whose it is, the longest path first.
    private let systems: [(path: [Substring], system: System)]

    /// - Parameter styles: by path; what lies below a path is of the same style unless it is named itself.
    init(_ styles: [(path: String, style: ErrorStyle)]) {
        var known: [String: System] = [:]
        for (_, style) in styles where known[style.system] == nil { known[style.system] = System(style) }
        self.systems = styles.compactMap { path, style in
            known[style.system].map { (path: path.split(separator: "/"), system: $0) }
        }.sorted { $0.path.count > $1.path.count }
    }

    private func system(of path: String) -> System? {
        let segments = path.split(separator: "/")
        return self.systems.first { segments.starts(with: $0.path) }?.system
    }

    func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        guard let system = self.system(of: request.uri.path) else { return try await next(request, context) }
        do {
            let response = try await next(request, context)
            system.answered.increment()
            return response
        } catch {
            let problem = ProblemMiddleware.problem(error, request, context)
            let status = system.style.status(of: problem)
            (status.kind == .serverError ? system.failed : system.refused).increment()
            return problem.response(system.style.body(of: problem), status: status)
        }
    }
}
