// Carillon · SocketSession.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import NIOCore

/// One client's connection to its inbox, whatever its dialect: who it is, what it has, what it is owed.
///
/// It belongs to its loop's shard, which calls it for changes and on every tick; no task, no timer of its own.
final class SocketSession {
    enum Phase {
        /// Waits for a token.
        case anonymous
        /// Presence is being registered and the inbox read.
        case opening
        case open
        /// The client was told the end.
        case closing
    }

    /// Changes that may wait for the ones before them; what is dropped at the bound is found when the hole is filled.
    private static let longestWait = 1_024
    /// Resumptions that may wait for the ones before them.
    private static let mostResumptions = 16
    /// Proofs under way whose versions are kept; at the bound the newest takes the place of the one
    /// before it.
    private static let mostMarks = 32
    /// Calls that may wait for the first sync.
    private static let mostEarlyCalls = 16

    /// How often a bookmark is noted though the client has seen no more; it would lapse after an
    /// hour.
    private static let bookmarkRefresh: TimeAmount = .minutes(10)

    let connection: String
    /// The mark that tells the user's clients apart; nil if a client that comes back says what it
    /// has.
    let client: String?
    let openedAt: NIODeadline
    let shard: HubShard
    /// Nil once the connection is gone.
    private(set) var wire: (any SocketWire)?

    var phase: Phase
    var identity: SocketIdentity?
    private var sequence = InboxSequence()
    var proofs = ProofLedger()
    /// Changes that wait for the sync, or for the one before them.
    private var held: [LoopChange] = []
    private var heldSince: NIODeadline?
    private var isFilling = false
    private var isResyncing = false
    /// What the client asked for before it could be asked for here.
    private var resumptions: [Resumption] = []
    /// Calls that came before the inbox was read, in their order.
    private var earlyCalls: [(message: ClientMessage, reference: [UInt8]?)] = []
    private var mustProve = false
    /// Up to where the client has proven that it has everything; nil until the inbox was read.
    private var seen: Int64?
    /// The version that each proof under way is of.
    private var marks: [(sequence: UInt64, version: Int64)] = []
    private var noted: (version: Int64, at: NIODeadline)?
    var since: Int64?
    /// Tokens of this client that are being checked.
    var checks = 0
    var allowance: Int
    /// Messages that the user's own rate does not know of yet.
    var unreported = 0
    /// Active until the client says otherwise.
    var state = ConnectionPresence.State.active

    init(
        connection: String,
        identity: SocketIdentity?,
        since: Int64?,
        client: String? = nil,
        shard: HubShard
    ) {
        self.connection = connection
        self.client = client
        self.identity = identity
        self.since = since
        self.shard = shard
        self.phase = identity == nil ? .anonymous : .opening
        self.openedAt = .now()
        self.allowance = shard.configuration.messageBurst
    }

    var dialect: Dialect { self.wire?.dialect ?? .native }

    /// The connection is up.
    func begin(_ wire: any SocketWire) {
        self.wire = wire
        self.shard.add(self)
        if let identity { self.shard.open(self, identity: identity, since: self.since) }
    }

    /// The connection is gone.
    func end() {
        guard self.wire != nil else { return }
        self.phase = .closing
        self.shard.remove(self)
        self.wire = nil
    }

    // MARK: Answers of the backend

    /// Presence is registered and the inbox read.
    func opened(_ snapshot: InboxSnapshot) {
        guard self.phase == .opening else { return self.takeBack() }
        self.phase = .open
        if self.state != .active, let identity { self.shard.presence(self, user: identity.user) }
        self.seen = snapshot.seenBefore
        self.wire?.welcome(connection: self.connection, version: snapshot.version)
        self.take(snapshot)
        self.askNext()
        let calls = self.earlyCalls
        self.earlyCalls = []
        for call in calls { self.obey(call.message, reference: call.reference) }
        self.flush()
    }

    /// Presence could not be registered, or the inbox not be read.
    func openingFailed() {
        self.takeBack()
        self.failed()
    }

    /// If it left while it was being registered, then its departure may have been recorded before.
    private func takeBack() {
        guard self.wire == nil, let identity else { return }
        self.shard.departed(self, user: identity.user)
    }

    /// The gateway cannot serve this socket now.
    func failed() {
        self.close(.tryAgainLater)
        self.flush()
    }

    /// Changes that were asked for; nil if there were none.
    func filled(_ snapshot: InboxSnapshot?, answering resumption: Resumption? = nil) {
        self.isFilling = false
        guard self.phase == .open else { return }
        if let snapshot, let news = self.news(snapshot, answering: resumption) {
            self.take(news, answering: resumption?.reference)
        } else {
            self.releaseHeld()
        }
        if snapshot?.isReset == true { self.isResyncing = false }
        if self.isResyncing { self.resync() }
        self.askNext()
        self.flush()
    }

    /// The changes could not be read; they are asked for again.
    func fillFailed(_ resumption: Resumption? = nil) {
        self.isFilling = false
        if let resumption { self.resumptions.insert(resumption, at: 0) }
        if self.isResyncing { self.resync() }
        self.askNext()
        self.flush()
    }

    /// Asks what changed for the client; once the inbox was read, and after what is asked for already.
    ///
    /// - Returns: false if too many wait.
    func resume(_ resumption: Resumption) -> Bool {
        guard self.resumptions.count < Self.mostResumptions else { return false }
        self.resumptions.append(resumption)
        self.askNext()
        return true
    }

    /// Keeps a call until the inbox was read, so that its answer follows the first sync.
    ///
    /// - Returns: false if too many wait.
    func hold(_ message: ClientMessage, reference: [UInt8]?) -> Bool {
        guard self.earlyCalls.count < Self.mostEarlyCalls else { return false }
        self.earlyCalls.append((message, reference))
        return true
    }

    private func askNext() {
        guard let identity else { return }
        while self.phase == .open, !self.isFilling, !self.resumptions.isEmpty {
            let resumption = self.resumptions.removeFirst()
            self.isFilling = self.shard.requestChanges(
                self, user: identity.user, since: resumption.version, answering: resumption)
            if !self.isFilling { self.sayBusy(resumption.reference) }
        }
    }

    /// Asks for the newest unread, as often as it takes to get it.
    func resync() {
        self.isResyncing = true
        // Older than any inbox: the answer is a reset.
        guard self.phase == .open, !self.requestChanges(since: -1) else { return }
        self.isResyncing = false
        self.close(.tryAgainLater)
    }

    /// The answer to a client's message.
    func answer(_ answer: SocketAnswer, reference: [UInt8]?) {
        guard self.phase == .open else { return }
        self.wire?.answer(answer, to: reference)
        self.flush()
    }

    /// What an answer has that the client was not told while it was under way; nil if that is nothing.
    ///
    /// Whoever asked by itself, or begins anew, gets all of it.
    private func news(_ snapshot: InboxSnapshot, answering resumption: Resumption?) -> InboxSnapshot? {
        guard resumption == nil, !snapshot.isReset, let last = self.sequence.last else { return snapshot }
        return snapshot.version > last ? snapshot.news(after: last) : nil
    }

    private func take(_ snapshot: InboxSnapshot, answering reference: [UInt8]? = nil) {
        let overtaking = snapshot.isReset ? self.sequence.last : nil
        if snapshot.isReset { self.sequence.reset(to: snapshot.version) }
        self.sequence.advance(to: snapshot.version)
        self.wire?.sync(snapshot, answering: reference)
        for item in snapshot.items where item.awaitsProof { self.awaitProof(item.id, lane: item.lane) }
        if self.client != nil { self.mustProve = true }
        self.releaseHeld()
        // Changes that overtook the reset are gone from the client with it.
        if let overtaking, overtaking > snapshot.version { _ = self.requestChanges(since: snapshot.version) }
    }

    func requestChanges(since: Int64) -> Bool {
        guard let identity, !self.isFilling else { return true }
        self.isFilling = self.shard.requestChanges(self, user: identity.user, since: since)
        return self.isFilling
    }

    // MARK: Changes

    /// A change of the inbox, or an event; written with the shard's next flush.
    func deliver(_ change: LoopChange) {
        switch self.phase {
        case .anonymous, .closing: return
        case .opening: self.hold(change)
        case .open: self.place(change, isNew: true)
        }
    }

    /// Sends a change if it is this one's turn.
    private func place(_ change: LoopChange, isNew: Bool) {
        let isComplete = change.change.isComplete(for: self.dialect)
        let version = change.change.version
        guard version > 0 else {
            // One that is in no inbox, and came in other shapes only, is nowhere to be had.
            if isComplete { self.transmit(change) } else { SocketMetrics.incomplete.increment() }
            return
        }
        if let last = self.sequence.last, version > last, !isComplete {
            // The inbox has it in this dialect's shape: it waits until the answer has gone past it.
            self.hold(change)
            if isNew { _ = self.requestChanges(since: last) }
            return
        }
        switch self.sequence.judge(previous: change.change.previous, version: version) {
        case .send:
            self.transmit(change)
            if isNew, !self.held.isEmpty { self.releaseHeld() }
        case .known:
            // It went out before; the next proof covers it again.
            if change.change.isNotification { self.awaitProof(change.change.id, lane: change.change.awaitingLane) }
        case .hold:
            self.hold(change)
        }
    }

    private func hold(_ change: LoopChange) {
        guard self.held.count < Self.longestWait else {
            SocketMetrics.dropped.increment()
            return
        }
        self.held.append(change)
        self.heldSince = self.heldSince ?? .now()
    }

    private func releaseHeld() {
        let held = self.held.sorted { $0.change.version < $1.change.version }
        self.held = []
        self.heldSince = nil
        for change in held { self.place(change, isNew: false) }
    }

    private func transmit(_ change: LoopChange) {
        self.wire?.change(change)
        if change.change.isNotification { self.awaitProof(change.change.id, lane: change.change.awaitingLane) }
    }

    // MARK: Proof

    private func awaitProof(_ id: NotificationID, lane: Lane?) {
        guard self.proofs.await(id, lane: lane) else { return SocketMetrics.unproven.increment() }
        self.mustProve = true
    }

    /// The client has all that was said before the proof of this number was requested.
    func proven(_ sequence: UInt64) {
        if sequence <= self.proofs.sequence {
            while let mark = self.marks.first, mark.sequence <= sequence {
                self.seen = max(self.seen ?? mark.version, mark.version)
                self.marks.removeFirst()
            }
        }
        self.report(self.proofs.confirm(sequence))
    }

    /// How far the client has seen its inbox; nil where that is not kept, or the inbox was not
    /// read.
    func bookmark(hasLeft: Bool) -> SocketBookmark? {
        guard let client, let identity, let wire, let seen else { return nil }
        // Where nothing is ever proven, what was written counts as seen.
        let version = wire.provesReceipt || wire.hasUnwritten ? seen : self.sequence.last ?? seen
        return SocketBookmark(
            user: identity.user,
            connection: self.connection,
            client: client,
            version: version,
            hasLeft: hasLeft
        )
    }

    private func noteBookmark(now: NIODeadline) {
        guard self.phase == .open, let bookmark = self.bookmark(hasLeft: false) else { return }
        if let noted, noted.version == bookmark.version, now - noted.at < Self.bookmarkRefresh { return }
        self.noted = (bookmark.version, now)
        self.shard.note(bookmark)
    }

    func report(_ proven: [ProofLedger.Awaited]) {
        guard let identity else { return }
        for proof in proven { self.shard.prove(identity.user, proof.id, lane: proof.lane) }
    }

    // MARK: Writing

    /// Writes all that has gathered, with one request of proof for all of it.
    func flush() {
        if self.mustProve, self.phase != .closing {
            self.mustProve = false
            let sequence = self.proofs.nextSequence()
            if self.client != nil, let version = self.sequence.last {
                if self.marks.count >= Self.mostMarks { self.marks.removeLast() }
                self.marks.append((sequence, version))
            }
            self.wire?.requestProof(sequence)
        }
        self.wire?.flush()
    }

    /// Has the wire prove that its client is still there.
    func probe() {
        guard self.phase != .closing else { return }
        self.mustProve = true
    }

    /// Tells the client why, and ends the connection.
    func close(_ end: SocketEnd) {
        guard self.phase != .closing else { return }
        self.phase = .closing
        self.wire?.close(end)
    }

    /// More waits for the client than may.
    func isTooSlow() {
        SocketMetrics.slowReaders.increment()
        self.close(.tooSlow)
    }

    /// Tells the client to come back elsewhere.
    func sayGoodbye(reconnectAfter: Duration) {
        self.close(.restart(reconnectAfter: reconnectAfter))
        self.wire?.flush()
    }

    /// Ends the connection at once.
    func drop() {
        self.wire?.drop()
    }

    // MARK: Time

    /// What time alone brings about: timeouts, expiry, pings.
    func tick(now: NIODeadline, wallClock: Timestamp) {
        let configuration = self.shard.configuration
        self.allowance = min(configuration.messageBurst, self.allowance + configuration.messagesPerSecond)
        if self.phase != .closing {
            if let expiresAt = self.identity?.expiresAt, expiresAt <= wallClock {
                if self.wire?.awaitsFreshToken() != true { self.close(.expired) }
            } else if self.phase == .anonymous, now - self.openedAt > TimeAmount(configuration.authentication) {
                // One that came in time and still waits is no fault of the client's.
                self.close(self.checks > 0 ? .tryAgainLater : .unauthorized("no credential came in time"))
            }
        }
        self.noteBookmark(now: now)
        self.wire?.tick(now: now)
        self.flush()
    }

    /// Asks the inbox for what is missing, if a change has waited for it too long.
    func fillHole(now: NIODeadline) {
        guard self.phase == .open, let heldSince, let last = self.sequence.last,
            now - heldSince > TimeAmount(self.shard.configuration.holdTime)
        else { return }
        self.heldSince = now
        _ = self.requestChanges(since: last)
    }

    var isHolding: Bool { self.heldSince != nil }
    var lastVersion: Int64? { self.phase == .open ? self.sequence.last : nil }
}
