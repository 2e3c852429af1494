// Carillon · ScriptedBackend.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Sockets
import Synchronization

/// A backend that does what a test says; unless it says otherwise, inboxes are at version 4 and stay there.
struct ScriptedBackend: SocketBackend {
    static let version: Int64 = 4

    var onAuthenticate: @Sendable (String) async throws -> SocketIdentity = {
        SocketIdentity(user: $0, expiresAt: nil)
    }
    var onOpen: @Sendable () async throws -> Void = {}
    var onChanges: @Sendable ([InboxQuestion]) async throws -> Void = { _ in }
    /// How an inbox stands for a new connection, where it is not to be empty.
    var opened: (@Sendable (SocketOpening) -> InboxSnapshot)?
    /// What changed, where it is not to be nothing.
    var changed: (@Sendable (InboxQuestion) -> InboxSnapshot)?
    /// Called with the connections' names, as is the next.
    var onRegister: @Sendable ([String]) async throws -> Void = { _ in }
    var onAreRegistered: @Sendable ([String]) async throws -> [Bool] = { $0.map { _ in true } }
    var onClose: @Sendable ([String]) async throws -> Void = { _ in }
    var onNote: @Sendable ([SocketBookmark]) -> Void = { _ in }
    var onRegistered: @Sendable (String) async throws -> [String] = { _ in [] }
    var onSetStates: @Sendable ([PresenceChange]) async throws -> Void = { _ in }
    var onMarkRead: @Sendable () async throws -> Void = {}
    var onUnread: @Sendable () async throws -> Void = {}

    func authenticate(token: String) async throws -> SocketIdentity { try await self.onAuthenticate(token) }
    func authenticate(_ credentials: SocketCredentials) async throws -> SocketIdentity? { nil }

    func open(_ openings: [SocketOpening]) async throws -> [InboxSnapshot] {
        try await self.onOpen()
        return openings.map { self.opened?($0) ?? InboxSnapshot(version: Self.version, unread: 0, total: 0) }
    }

    func note(_ bookmarks: [SocketBookmark]) async throws { self.onNote(bookmarks) }

    func close(_ connections: [(user: String, connection: String)]) async throws {
        try await self.onClose(connections.map(\.connection))
    }

    func registered(user: String) async throws -> [String] { try await self.onRegistered(user) }

    func areRegistered(_ connections: [(user: String, connection: String)]) async throws -> [Bool] {
        try await self.onAreRegistered(connections.map(\.connection))
    }

    func register(_ connections: [(user: String, connection: String, dialect: Dialect, since: Timestamp)]) async throws
    {
        try await self.onRegister(connections.map(\.connection))
    }

    func changes(_ questions: [InboxQuestion]) async throws -> [InboxSnapshot?] {
        try await self.onChanges(questions)
        return questions.map { question in
            if let changed { return changed(question) }
            let isUnchanged = question.since == Self.version && !question.wantsAnswer
            return isUnchanged ? nil : InboxSnapshot(version: Self.version, unread: 0, total: 0)
        }
    }

    func confirm(_ proofs: [ReceiptProof]) async throws {}
    func setStates(_ changes: [PresenceChange]) async throws { try await self.onSetStates(changes) }
    func admits(messages: Int, of user: String) -> Bool { true }
    func markRead(_ reading: Reading) async throws -> Int32 {
        try await self.onMarkRead()
        return 0
    }

    func unreadCount(user: String) async throws -> Int32 {
        try await self.onUnread()
        return 0
    }
}

/// What was noted, in order.
final class Notes<Element: Sendable>: Sendable {
    private let noted = Mutex<[Element]>([])

    var all: [Element] { self.noted.withLock { $0 } }
    func note(_ elements: [Element]) { self.noted.withLock { $0 += elements } }
}
