// Carillon · Middleware.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core
import CoreMetrics
import HTTPTypes
import Hummingbird
import Logging
import Metrics
import NIOCore
import Sockets

/// Authenticates the caller; 401 for a missing or invalid credential.
///
/// A body may arrive long after its head, so the end of the body checks for a revocation again.
struct IdentityMiddleware: RouterMiddleware {
    typealias Context = APIContext

    let credentials: CredentialResolver
    /// `.canonical`, or `.compatible` for the paths of existing clients.
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
        let caller = try context.requireCaller()
        let length = request.headers[.contentLength]
        guard length.map({ $0 != "0" }) ?? (request.method != .get && request.method != .head) else {
            return try await next(request, context)
        }
        var request = request
        let body = RecheckedBody(base: request.body, caller: caller, credentials: self.credentials)
        request.body = RequestBody(asyncSequence: body)
        return try await next(request, context)
    }
}

/// A body whose end checks that the caller's token was not revoked while it arrived.
private struct RecheckedBody: AsyncSequence, Sendable {
    struct AsyncIterator: AsyncIteratorProtocol {
        var base: RequestBody.AsyncIterator
        let caller: Caller
        let credentials: CredentialResolver

        @concurrent mutating func next() async throws -> ByteBuffer? {
            if let part = try await self.base.next() { return part }
            do throws(TokenFault) {
                try await self.credentials.recheck(self.caller)
            } catch {
                throw Problem(error)
            }
            return nil
        }
    }

    let base: RequestBody
    let caller: Caller
    let credentials: CredentialResolver

    func makeAsyncIterator() -> AsyncIterator {
        AsyncIterator(base: self.base.makeAsyncIterator(), caller: self.caller, credentials: self.credentials)
    }
}

extension PresentedCredentials {
    private static let fetchSiteName = HTTPField.Name("Sec-Fetch-Site")

    /// Takes the credentials of a request.
    init(_ request: Request) {
        self.init()
        self.authorization = request.headers[values: .authorization]
        self.cookies = request.headers[values: .cookie]
        self.origin = request.headers[.origin]
        self.fetchSite = Self.fetchSiteName.flatMap { request.headers[$0] }
        self.isUnsafe = request.method != .get && request.method != .head
    }
}

/// Converts errors into problem documents.
///
/// Internal errors are logged, and answered without details.
struct ProblemMiddleware: RouterMiddleware {
    typealias Context = APIContext

    func handle(
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

    /// Returns the problem for an error, and logs internal errors.
    static func problem(_ error: any Error, _ request: Request, _ context: APIContext) -> Problem {
        switch error {
        case let problem as Problem: return problem
        case let error as HTTPError where error.status == .notFound: return Problem.noSuchPath
        case let error as HTTPError: return Problem(error.status, error.body ?? error.status.reasonPhrase)
        default:
            context.logger.error(
                "request failed", metadata: ["error": "\(error)", "http.path": "\(context.loggedPath)"])
            return self.problem(error)
        }
    }

    /// Returns the status of the answer to an error.
    static func status(of error: any Error) -> HTTPResponse.Status {
        switch error {
        case let problem as Problem: problem.status
        case let error as HTTPError: error.status
        default: self.problem(error).status
        }
    }

    private static func problem(_ error: any Error) -> Problem {
        switch error {
        case let error as RedisError where error.code == .notReplicated:
            Problem(
                .serviceUnavailable, "too few replicas of Redis have the job; send it again with the same id",
                retryAfter: 2)
        case let error as RedisError where error.isOutOfMemory:
            Problem(.serviceUnavailable, "Redis is out of memory", retryAfter: 2)
        case let error as RedisError:
            Problem(
                .serviceUnavailable, error.serverCode.map { "Redis refuses it: \($0)" } ?? "Redis is out of reach",
                retryAfter: 2)
        case let error as PostgresError where error.isTransient:
            Problem(.serviceUnavailable, "PostgreSQL is out of reach or too busy", retryAfter: 2)
        default: Problem(.internalServerError, "internal error; see the gateway's log for this request id")
        }
    }
}

/// Gives each request an id for its response and log lines, and counts calls.
struct RequestMiddleware: RouterMiddleware {
    typealias Context = APIContext

    private static let header = HTTPField.Name("X-Request-ID")
    private static let longestID = 128

    func handle(
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
            // Errors too: a client would take a body after HEAD for the next response.
            if request.method == .head { response = response.createHeadResponse() }
            if let name = Self.header { response.headers[name] = id }
            self.record(request, response.status, since: start, context)
            return response
        } catch {
            self.record(request, .internalServerError, since: start, context)
            throw error
        }
    }

    private func record(
        _ request: Request,
        _ status: HTTPResponse.Status,
        since start: ContinuousClock.Instant,
        _ context: APIContext
    ) {
        let duration = ContinuousClock.now - start
        let isCall = Self.isCall(request.uri.path)
        if isCall { CallMetrics.count(status, duration) }
        // Probes log at debug: an unreachable store has its own log line already.
        let level: Logger.Level = isCall && status.kind == .serverError ? .warning : .debug
        // The query and the path may contain credentials, so neither is logged.
        context.logger.log(
            level: level,
            "request answered",
            metadata: [
                "http.method": "\(request.method.rawValue)", "http.path": "\(context.loggedPath)",
                "http.status": "\(status.code)",
                "duration.ms": "\(duration.inMilliseconds)",
            ]
        )
    }

    /// Whether a path belongs to the API or to another system, and is no page or operator's path.
    private static func isCall(_ path: String) -> Bool {
        path.hasPrefix("/v1/") || ErrorStyle.of(path) != nil
    }

    /// Returns the client's id if it is safe to log, else a random id.
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

/// Logs each call by which an operator changes something.
struct OperatorLog: Sendable {
    private static let longestTarget = 256

    private let operation: String
    /// False for calls whose id is a user's, which is not logged.
    private let namesTarget: Bool

    /// Returns nil for an operation that changes nothing, or only the caller's own data.
    init?(_ method: HTTPRequest.Method, _ operation: Operation, tag: String) {
        guard operation.scope != .user, method != .get, !operation.isReadOnly else { return nil }
        self.operation = operation.id
        self.namesTarget = tag != "users"
    }

    /// Logs an answered call if its token has the scope `admin`.
    func record(_ status: HTTPResponse.Status, _ request: Request, _ context: APIContext) {
        guard let caller = context.caller, caller.scopes.contains(.admin) else { return }
        var metadata: Logger.Metadata = [
            "caller": "\(caller.user)", "operation": "\(self.operation)",
            "http.method": "\(request.method.rawValue)", "http.path": "\(context.loggedPath)",
            "http.status": "\(status.code)",
        ]
        if self.namesTarget, let target = context.parameters.get("id") {
            metadata["target"] = "\(String(target.unicodeScalars.prefix(Self.longestTarget)))"
        }
        context.logger.notice("operator's call answered", metadata: metadata)
    }
}

/// Answers 404 to alternative spellings of a path that the router would accept.
///
/// A proxy that hides a path compares its exact spelling. So empty segments are refused, as is a
/// trailing slash on the paths of operators.
struct SpellingMiddleware: RouterMiddleware {
    typealias Context = APIContext

    private static let exact: Set<String> = ["/metrics/", "/readyz/", "/healthz/"]

    func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        let path = request.uri.path
        let slash = UInt8(ascii: "/")
        // Compares bytes: `contains("//")` compares characters, which takes far longer.
        let hasEmptySegment = zip(path.utf8, path.utf8.dropFirst()).contains { $0 == slash && $1 == slash }
        guard !hasEmptySegment, !Self.exact.contains(path) else { throw Problem.noSuchPath }
        return try await next(request, context)
    }
}

/// Metrics of calls, created once.
enum CallMetrics {
    private static let good = Self.answered("2xx")
    private static let elsewhere = Self.answered("3xx")
    private static let refused = Self.answered("4xx")
    private static let failed = Self.answered("5xx")
    private static let duration = Timer(label: "carillon.calls.duration")

    static func count(_ status: HTTPResponse.Status, _ duration: Duration) {
        switch status.kind {
        case .serverError: Self.failed.increment()
        case .clientError: Self.refused.increment()
        case .redirection: Self.elsewhere.increment()
        default: Self.good.increment()
        }
        let parts = duration.components
        Self.duration.recordNanoseconds(parts.seconds * 1_000_000_000 + parts.attoseconds / 1_000_000_000)
    }

    private static func answered(_ result: String) -> Counter {
        Counter(label: "carillon.calls.answered", dimensions: [("class", result)])
    }
}

/// Answers 429 to users who call too often; services have no limit.
struct CallRateMiddleware: RouterMiddleware {
    typealias Context = APIContext

    private let rate: UserRate?

    init(rate: UserRate?) {
        self.rate = rate
    }

    func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        if let caller = context.caller, !caller.isService { try self.rate?.requireRoom(for: caller.user) }
        return try await next(request, context)
    }
}

extension UserRate {
    /// Counts a call.
    ///
    /// - Throws: ``Problem`` 429 if the user calls too often.
    func requireRoom(for user: String) throws {
        guard let delay = self.delay(user) else { return }
        let seconds = max(1, Int(delay.components.seconds) + (delay.components.attoseconds > 0 ? 1 : 0))
        throw Problem(.tooManyRequests, "too many calls; wait as long as Retry-After says", retryAfter: seconds)
    }
}

/// Answers 405 with `Allow` (RFC 9110 section 15.5.6) for unsupported methods of known paths.
struct MethodMiddleware: RouterMiddleware {
    typealias Context = APIContext

    /// Answers GET on each known path with the methods that the path has.
    private let paths: RouterResponder<APIContext>

    /// - Parameter router: has all routes. Add the middleware after them, so that it sees only
    ///   requests without a route.
    init(of router: Router<APIContext>) {
        var known: [String: (path: RouterPath, methods: Set<String>)] = [:]
        for route in router.routes {
            known[route.path.description, default: (route.path, [])].methods.insert(route.method.rawValue)
        }
        let paths = Router(context: APIContext.self)
        for (path, methods) in known.values {
            let names = methods.union(methods.contains("GET") ? ["HEAD"] : []).sorted().joined(separator: ", ")
            paths.get(path) { _, _ in Response(status: .methodNotAllowed, headers: [.allow: names]) }
        }
        self.paths = paths.buildResponder()
    }

    func handle(
        _ request: Request,
        context: APIContext,
        next: @concurrent (Request, APIContext) async throws -> Response
    ) async throws -> Response {
        let question = Request(
            head: HTTPRequest(method: .get, scheme: nil, authority: nil, path: request.head.path),
            body: RequestBody(buffer: ByteBuffer()))
        let known = try await self.paths.respond(to: question, context: context)
        guard known.status == .methodNotAllowed else { return try await next(request, context) }
        var problem = Problem(.methodNotAllowed, "the method \(request.method.rawValue) is not for this path")
        problem.allowed = known.headers[.allow]
        throw problem
    }
}
