// Carillon · Gateway.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// Returns the user's token from the app's login; nil if no user is logged in.
///
/// `isRefused` is true if the gateway refused the last token or if it expires soon: return a fresh
/// one then. If the provider throws, the connection calls it again later, and a call of REST fails
/// with ``GatewayError/noToken(_:)``.
public typealias TokenProvider = @Sendable (_ isRefused: Bool) async throws -> String?

/// Calls a gateway's REST API as a user (docs/rest.md).
///
/// You may repeat any call except ``reportAction(_:of:)``; the second changes nothing more. A call
/// that the gateway refuses with 401 is sent once more with a fresh token.
public struct Gateway: Sendable {
    /// The bound of ids in one message.
    private static let mostIDs = 1_000

    let address: URL
    let tokens: TokenSource
    let sockets: any SocketTransport
    private let http: any HTTPTransport

    /// - Parameters:
    ///   - url: the gateway's address, such as `https://notify.example.com`.
    ///   - http: sends the requests.
    ///   - sockets: opens the sockets of an ``Inbox``.
    /// - Throws: ``GatewayError/invalidArgument(_:)`` if the address is none of a gateway.
    public init(
        _ url: URL,
        http: any HTTPTransport = URLSessionTransport(),
        sockets: (any SocketTransport)? = nil,
        tokenProvider: @escaping TokenProvider
    ) throws(GatewayError) {
        guard let parts = URLComponents(url: url, resolvingAgainstBaseURL: true),
            ["http", "https"].contains(parts.scheme), !(parts.host ?? "").isEmpty,
            (1...65_535).contains(parts.port ?? 443)
        else { throw .invalidArgument("url: must be the http or https address of a gateway") }
        guard parts.user == nil, parts.query == nil, parts.fragment == nil else {
            throw .invalidArgument("url: must not have a user, a query or a fragment; the token has a provider")
        }
        self.address = url
        self.http = http
        self.sockets = sockets ?? DefaultSocketTransport()
        self.tokens = TokenSource(tokenProvider)
    }

    // MARK: Notifications

    /// Returns a page of the inbox, newest first.
    ///
    /// - Parameters:
    ///   - cursor: the `nextCursor` of the page before; nil for the newest.
    ///   - limit: 1 to 100.
    public func notifications(
        before cursor: String? = nil, limit: Int = 50, unreadOnly: Bool = false
    ) async throws(GatewayError) -> InboxPage {
        var query = [URLQueryItem(name: "limit", value: String(limit))]
        if let cursor { query.append(URLQueryItem(name: "cursor", value: cursor)) }
        if unreadOnly { query.append(URLQueryItem(name: "unread_only", value: "true")) }
        return try await self.call("GET", ["notifications"], query: query)
    }

    /// Marks notifications as read on all of the user's clients, in calls of 1,000.
    ///
    /// - Returns: the answer to the last call; nil without ids.
    @discardableResult
    public func markRead(_ ids: [String]) async throws(GatewayError) -> InboxChange? {
        var answer: InboxChange?
        for first in stride(from: 0, to: ids.count, by: Self.mostIDs) {
            let part = Array(ids[first..<min(first + Self.mostIDs, ids.count)])
            answer = try await self.call("POST", ["notifications", "read"], ["ids": part])
        }
        return answer
    }

    /// Marks everything as read that is in the inbox when the gateway takes the call.
    @discardableResult
    public func markAllRead() async throws(GatewayError) -> InboxChange {
        try await self.call("POST", ["notifications", "read"], ["all": true])
    }

    @discardableResult
    public func markUnread(_ id: String) async throws(GatewayError) -> InboxChange {
        try await self.call("POST", ["notifications", id, "unread"])
    }

    /// Moves a notification to the archive, which keeps it for a year.
    @discardableResult
    public func archive(_ id: String) async throws(GatewayError) -> InboxChange {
        try await self.call("POST", ["notifications", id, "archive"])
    }

    @discardableResult
    public func delete(_ id: String) async throws(GatewayError) -> InboxChange {
        try await self.call("DELETE", ["notifications", id])
    }

    /// Brings back a notification that was archived, snoozed or deleted.
    @discardableResult
    public func restore(_ id: String) async throws(GatewayError) -> InboxChange {
        try await self.call("POST", ["notifications", id, "restore"])
    }

    /// Reports that the user opened a notification, such as by a tap on its push.
    public func reportOpened(_ id: String) async throws(GatewayError) {
        _ = try await self.send("POST", ["notifications", id, "opened"])
    }

    /// Reports that the user pressed a button of a notification: one of the `actions` of its data.
    ///
    /// Each call is an event for the app's services, also one that repeats another.
    public func reportAction(_ action: String, of id: String) async throws(GatewayError) {
        _ = try await self.send("POST", ["notifications", id, "actions"], ["action": action])
    }

    /// Reports that a push is shown; sockets prove receipt without it.
    public func reportDelivered(_ id: String) async throws(GatewayError) {
        _ = try await self.send("POST", ["notifications", id, "delivered"])
    }

    // MARK: Requests

    private static let nothing: [String: String]? = nil

    func call<Answer: Decodable>(
        _ method: String, _ path: [String], query: [URLQueryItem] = []
    ) async throws(GatewayError) -> Answer {
        try await self.call(method, path, query: query, Self.nothing)
    }

    func call<Answer: Decodable>(
        _ method: String, _ path: [String], query: [URLQueryItem] = [], _ body: (some Encodable & Sendable)?
    ) async throws(GatewayError) -> Answer {
        let answer = try await self.send(method, path, query: query, body)
        do {
            return try JSON.decode(Answer.self, from: answer.body)
        } catch {
            throw .invalidAnswer("\(method) /v1/\(path.joined(separator: "/")): \(error)")
        }
    }

    func send(_ method: String, _ path: [String]) async throws(GatewayError) -> GatewayAnswer {
        try await self.send(method, path, Self.nothing)
    }

    func send(
        _ method: String, _ path: [String], query: [URLQueryItem] = [], _ body: (some Encodable & Sendable)?
    ) async throws(GatewayError) -> GatewayAnswer {
        // Without its id, a call for one notification would be one for all.
        guard path.allSatisfy({ !$0.isEmpty }) else { throw .invalidArgument("id: must not be empty") }
        let data: Data?
        do {
            data = try body.map { try JSON.encode($0) }
        } catch {
            throw .invalidArgument("the body is no JSON: \(error)")
        }
        let url = self.url(path, query: query)
        let token = try await self.tokens.token()
        let answer = try await self.exchange(method, url, data, token: token)
        guard answer.status == 401 else { return try Self.accept(answer) }
        let fresh = try await self.tokens.token(replacing: token)
        return try Self.accept(try await self.exchange(method, url, data, token: fresh))
    }

    private func exchange(
        _ method: String, _ url: URL, _ body: Data?, token: String
    ) async throws(GatewayError) -> GatewayAnswer {
        var headers = Self.headers(token: token)
        if body != nil { headers["Content-Type"] = "application/json" }
        do {
            return try await self.http.send(GatewayRequest(method: method, url: url, headers: headers, body: body))
        } catch {
            throw Task.isCancelled ? .cancelled : .unreachable(error.localizedDescription)
        }
    }

    private static func accept(_ answer: GatewayAnswer) throws(GatewayError) -> GatewayAnswer {
        guard (200..<300).contains(answer.status) else { throw .refused(Problem(answer)) }
        return answer
    }

    static func headers(token: String) -> [String: String] {
        ["Authorization": "Bearer \(token)", "User-Agent": "carillon-swift"]
    }

    /// The URL of a path below `/v1`, whose parts are percent-encoded.
    func url(_ path: [String], query: [URLQueryItem] = [], scheme: String? = nil) -> URL {
        guard var parts = URLComponents(url: self.address, resolvingAgainstBaseURL: true) else { return self.address }
        let unreserved = CharacterSet(charactersIn: "-._~").union(.alphanumerics)
        let encoded = (["v1"] + path).map { $0.addingPercentEncoding(withAllowedCharacters: unreserved) ?? "" }
        while parts.percentEncodedPath.hasSuffix("/") { parts.percentEncodedPath.removeLast() }
        parts.percentEncodedPath += "/" + encoded.joined(separator: "/")
        if !query.isEmpty { parts.queryItems = query }
        if let scheme { parts.scheme = scheme }
        return parts.url ?? self.address
    }
}

/// A page of the inbox, newest first.
public struct InboxPage: Decodable, Sendable {
    public let notifications: [InboxNotification]
    /// The `before` of the next page; nil after the last.
    public let nextCursor: String?
    public let unread: Int
    public let total: Int
    public let version: Int

    private enum CodingKeys: String, CodingKey {
        case notifications, unread, total, version
        case nextCursor = "next_cursor"
    }
}

/// The answer to a change of the inbox.
public struct InboxChange: Decodable, Sendable {
    /// How many notifications changed.
    public let changed: Int
    public let unread: Int
    /// The inbox version after the change.
    public let version: Int
}
