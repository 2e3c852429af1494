// Carillon · Gateway.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// Returns the user's token from the app's login; nil if no user is logged in.
///
/// If `isRefused` is true, the gateway refused the last token or the token expires soon: return a
/// fresh one. If the provider throws, a connection calls it again later, and a REST call fails with
/// ``GatewayError/noToken(_:)``.
public typealias TokenProvider = @Sendable (_ isRefused: Bool) async throws -> String?

/// Calls a gateway's REST API as a user (docs/rest.md).
///
/// Every call is idempotent, except ``reportAction(_:of:)`` and ``markAllRead()``. If an earlier
/// ``archive(_:)`` or ``delete(_:)`` removed the notification, another is refused with 404. After a
/// 401, a call is sent once more with a fresh token.
public struct Gateway: Sendable {
    /// The most ids in one request.
    private static let mostIDs = 1_000

    let address: URL
    let tokens: TokenSource
    let sockets: any SocketTransport
    private let http: any HTTPTransport

    /// Creates a gateway for one user; it connects at the first call.
    ///
    /// - Parameters:
    ///   - url: the gateway's address, such as `https://notify.example.com`.
    ///   - http: sends the requests.
    ///   - sockets: opens the sockets of an ``Inbox``; nil for the platform's default.
    ///   - tokenProvider: returns the user's token.
    /// - Throws: ``GatewayError/invalidArgument(_:)`` if the address cannot be that of a gateway.
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
    ///   - cursor: the `nextCursor` of the previous page; nil for the newest.
    ///   - limit: the most notifications, 1 to 100.
    ///   - unreadOnly: leaves out read notifications.
    public func notifications(
        before cursor: String? = nil, limit: Int = 50, unreadOnly: Bool = false
    ) async throws(GatewayError) -> InboxPage {
        var query = [URLQueryItem(name: "limit", value: String(limit))]
        if let cursor { query.append(URLQueryItem(name: "cursor", value: cursor)) }
        if unreadOnly { query.append(URLQueryItem(name: "unread_only", value: "true")) }
        return try await self.call("GET", ["notifications"], query: query)
    }

    /// Marks notifications as read on all of the user's clients, up to 1,000 in a request.
    ///
    /// - Returns: the answer to the last request; nil if `ids` is empty.
    @discardableResult
    public func markRead(_ ids: [String]) async throws(GatewayError) -> InboxChange? {
        var answer: InboxChange?
        for first in stride(from: 0, to: ids.count, by: Self.mostIDs) {
            let part = Array(ids[first..<min(first + Self.mostIDs, ids.count)])
            answer = try await self.call("POST", ["notifications", "read"], ["ids": part])
        }
        return answer
    }

    /// Marks everything as read that is in the inbox when the gateway gets the call.
    @discardableResult
    public func markAllRead() async throws(GatewayError) -> InboxChange {
        try await self.call("POST", ["notifications", "read"], ["all": true])
    }

    /// Marks a notification as unread again.
    @discardableResult
    public func markUnread(_ id: String) async throws(GatewayError) -> InboxChange {
        try await self.call("POST", ["notifications", id, "unread"])
    }

    /// Moves a notification to the archive, which keeps it for a year.
    @discardableResult
    public func archive(_ id: String) async throws(GatewayError) -> InboxChange {
        try await self.call("POST", ["notifications", id, "archive"])
    }

    /// Deletes a notification; ``restore(_:)`` can bring it back.
    @discardableResult
    public func delete(_ id: String) async throws(GatewayError) -> InboxChange {
        try await self.call("DELETE", ["notifications", id])
    }

    /// Restores a notification that was archived, snoozed or deleted.
    @discardableResult
    public func restore(_ id: String) async throws(GatewayError) -> InboxChange {
        try await self.call("POST", ["notifications", id, "restore"])
    }

    /// Reports that the user opened a notification, such as by a tap on its push.
    public func reportOpened(_ id: String) async throws(GatewayError) {
        _ = try await self.send("POST", ["notifications", id, "opened"])
    }

    /// Reports that the user pressed a button of a notification: one of the `actions` in its data.
    ///
    /// Each call makes an event for the app's services, even if it repeats another.
    public func reportAction(_ action: String, of id: String) async throws(GatewayError) {
        _ = try await self.send("POST", ["notifications", id, "actions"], ["action": action])
    }

    /// Reports that a push was shown; not needed for notifications from a socket.
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
        // With an empty id, the path would be that of the whole inbox.
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

    /// Returns the URL of a path below `/v1`; percent-encodes its parts.
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
    /// The notifications, newest first.
    public let notifications: [InboxNotification]
    /// The `before` of the next page; nil on the last page.
    public let nextCursor: String?
    /// The number of unread notifications in the whole inbox.
    public let unread: Int
    /// The number of notifications in the whole inbox.
    public let total: Int
    /// The inbox version of this page.
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
    /// The number of unread notifications in the whole inbox after the change.
    public let unread: Int
    /// The inbox version after the change.
    public let version: Int
}
