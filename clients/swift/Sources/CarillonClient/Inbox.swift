// Carillon · Inbox.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Observation

/// A user's inbox, kept up to date over a socket, for SwiftUI and for programs.
///
/// ```swift
/// let inbox = Inbox(gateway)
/// inbox.connect()
/// for try await notification in inbox.arrivals() {
///     try? await inbox.markRead([notification.id])
/// }
/// ```
///
/// The inbox reconnects automatically, with a backoff of up to 30 s and full jitter or when the
/// gateway says, and resumes where it left off. While it is connected, the user counts as present,
/// so the user's phone stays silent; see ``focus(_:)``.
///
/// The user's changes show at once. If a change fails, the inbox undoes it and the call throws.
///
/// An inbox resumes from a version that belongs to one user. Make a new one for another user.
@Observable
@MainActor
public final class Inbox {
    /// The limits of an inbox.
    public struct Limits: Sendable {
        /// The most ``Inbox/notifications``; the oldest above it leave the list, not the inbox.
        public var notifications = 1_000
        /// The most arrivals, or events, that wait in one stream.
        ///
        /// Above it, the stream drops the oldest, and ``Inbox/dropped`` counts it. A dropped
        /// arrival stays unread in the inbox.
        public var waiting = 1_000
        /// The most changes by the user that the socket has not confirmed.
        ///
        /// Above it, calls throw ``GatewayError/tooManyChanges``.
        public var changes = 1_000

        /// Creates the default limits.
        public init() {}
    }

    /// The notifications, newest first: the newest 100 unread, those that came since, and the pages
    /// that ``loadOlder()`` added.
    public internal(set) var notifications: [InboxNotification] = []
    /// The number of unread notifications in the whole inbox.
    public internal(set) var unread = 0
    /// Whether the socket is open and up to date.
    public private(set) var isConnected = false
    /// The reason why the inbox is not connected, for developers; nil while it is connected.
    public private(set) var trouble: String?
    /// The reason why the inbox does not reconnect.
    ///
    /// It is ``GatewayError/signedOut`` or ``GatewayError/displaced``. ``connect()`` clears it.
    public private(set) var failure: GatewayError?
    /// Whether ``loadOlder()`` can load more.
    public internal(set) var hasOlder = true
    /// The number of arrivals and events that were dropped because nothing read them in time.
    public private(set) var dropped = 0
    /// The gateway of the inbox.
    public let gateway: Gateway

    @ObservationIgnored let timing: Timing
    @ObservationIgnored var state: InboxState
    @ObservationIgnored var pending: PendingChanges
    @ObservationIgnored var pages = LoadedPages()
    @ObservationIgnored private let arrivalStreams: StreamHub<InboxNotification>
    @ObservationIgnored private let eventStreams: StreamHub<EphemeralEvent>
    @ObservationIgnored private let changeStreams = StreamHub<Void>(most: 1)
    @ObservationIgnored private var connection: InboxConnection?
    @ObservationIgnored private var work: Task<Void, Never>?
    /// The number of the current connection; events of others are ignored.
    @ObservationIgnored private var generation = 0
    @ObservationIgnored private var isActive = true

    /// Creates an inbox; ``connect()`` opens it.
    ///
    /// - Parameters:
    ///   - gateway: the gateway, with the user's token.
    ///   - version: the version of the last notification that an earlier process handled. The inbox
    ///     then holds the changes since, and ``arrivals()`` begins there. nil for the whole inbox.
    ///   - limits: the limits of lists and buffers.
    ///   - timing: the clock and the jitter, which tests replace.
    public init(_ gateway: Gateway, resume version: Int? = nil, limits: Limits = Limits(), timing: Timing = Timing()) {
        self.gateway = gateway
        self.timing = timing
        self.state = InboxState(resume: version, mostItems: max(1, limits.notifications))
        self.pending = PendingChanges(most: max(1, limits.changes))
        self.arrivalStreams = StreamHub(most: max(1, limits.waiting))
        self.eventStreams = StreamHub(most: max(1, limits.waiting))
    }

    deinit { self.work?.cancel() }

    /// The version of the inbox; nil before the first connection.
    public var version: Int? { self.state.version }

    // MARK: Connection

    /// Connects and stays connected.
    ///
    /// Call it when the app comes to the foreground.
    public func connect() {
        guard self.work == nil else { return }
        self.failure = nil
        let generation = self.generation
        let connection = InboxConnection(
            self.gateway, version: self.state.version, isActive: self.isActive, timing: self.timing
        ) { [weak self] event in await self?.take(event, of: generation) }
        self.connection = connection
        self.work = Task { [weak self] in
            do throws(GatewayError) {
                try await connection.run()
            } catch {
                self?.end(generation, error)
            }
        }
    }

    /// Disconnects, so that the user gets pushes.
    ///
    /// Call it when the app goes to the background. Streams stay open; ``connect()`` resumes.
    public func disconnect() {
        self.work?.cancel()
        self.work = nil
        self.connection = nil
        self.generation += 1
        self.isConnected = false
        self.trouble = nil
        self.noteChange()
    }

    /// Disconnects and ends all streams, as on logout.
    public func close() {
        self.disconnect()
        self.finishStreams(nil)
    }

    /// Waits until the inbox is connected.
    ///
    /// Call ``connect()`` first.
    ///
    /// - Throws: the ``failure`` that ended the inbox, or ``GatewayError/cancelled``.
    public func connected() async throws(GatewayError) {
        if let failure { throw failure }
        guard !self.isConnected else { return }
        do {
            for try await _ in self.changes() where self.isConnected { return }
        } catch {
            throw error as? GatewayError ?? .cancelled
        }
        throw .cancelled
    }

    /// Reports whether the user looks at the app.
    ///
    /// If not, the user gets pushes after a while.
    public func focus(_ isActive: Bool) async {
        self.isActive = isActive
        await self.connection?.focus(isActive)
    }

    private func take(_ event: InboxConnection.Event, of generation: Int) {
        // A cancelled connection may still deliver a frame.
        guard generation == self.generation else { return }
        switch event {
        case .offline(let reason):
            self.isConnected = false
            self.trouble = reason
            self.noteChange()
        case .frame(.update(let update)):
            let (arrivals, isReset) = self.state.apply(update)
            self.pending.removeConfirmed(upTo: update.version)
            if update.isSync {
                self.isConnected = true
                self.trouble = nil
            }
            self.show()
            for arrival in arrivals { self.dropped += self.arrivalStreams.yield(arrival) }
            if isReset { self.reloadPages() }
        case .frame(.event(let event)):
            self.dropped += self.eventStreams.yield(event)
        case .frame(.goodbye), .frame(.error), .frame(.other):
            break
        }
    }

    private func end(_ generation: Int, _ error: GatewayError) {
        guard generation == self.generation else { return }
        self.disconnect()
        self.failure = error
        self.trouble = error.description
        self.finishStreams(error)
    }

    // MARK: Streams

    /// Returns new notifications, also those that came during a lost connection, each once.
    ///
    /// Each stream begins when it is made and has its own buffer of ``Limits/waiting``. It ends
    /// when you close the inbox, and throws the ``failure`` if the inbox cannot reconnect. After a
    /// gap of more than 500 changes, the arrivals are the newest 100 unread.
    ///
    /// After a lost connection or with `resume`, an old notification that this inbox has never seen
    /// also arrives if the user marked it unread or restored it meanwhile.
    public func arrivals() -> AsyncThrowingStream<InboxNotification, any Error> { self.arrivalStreams.make() }

    /// Returns ephemeral events, in a stream like that of ``arrivals()``.
    ///
    /// Events that an app sends during a lost connection are lost.
    public func events() -> AsyncThrowingStream<EphemeralEvent, any Error> { self.eventStreams.make() }

    /// Returns a value after each change of the inbox or its connection.
    ///
    /// For programs without SwiftUI. Changes that nothing has read yet become one value.
    public func changes() -> AsyncThrowingStream<Void, any Error> { self.changeStreams.make() }

    private func finishStreams(_ error: GatewayError?) {
        self.arrivalStreams.finish(error)
        self.eventStreams.finish(error)
        self.changeStreams.finish(error)
    }

    /// Publishes the state, with the pending changes applied.
    func show() {
        (self.notifications, self.unread) = self.pending.applied(to: self.state)
        self.pages.continueAfterLast(of: self.state)
        self.hasOlder = !self.pages.isComplete && !self.state.isFull
        self.noteChange()
    }

    private func noteChange() { _ = self.changeStreams.yield(()) }
}

/// Streams of one kind of values, each with a bounded buffer.
@MainActor
private final class StreamHub<Element: Sendable> {
    typealias Stream = AsyncThrowingStream<Element, any Error>

    private var continuations: [Stream.Continuation] = []
    private let most: Int

    init(most: Int) {
        self.most = most
    }

    func make() -> Stream {
        let (stream, continuation) = Stream.makeStream(bufferingPolicy: .bufferingNewest(self.most))
        self.continuations.append(continuation)
        return stream
    }

    /// Gives every stream the value and returns how many dropped their oldest value.
    func yield(_ element: Element) -> Int {
        var dropped = 0
        self.continuations.removeAll { continuation in
            switch continuation.yield(element) {
            case .terminated: return true
            case .dropped: dropped += 1
            case .enqueued: break
            @unknown default: break
            }
            return false
        }
        return dropped
    }

    func finish(_ error: (any Error)?) {
        for continuation in self.continuations { continuation.finish(throwing: error) }
        self.continuations = []
    }
}
