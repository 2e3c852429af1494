// Carillon · SocketSession.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import NIOCore

/// One client's connection to its inbox in any dialect: its identity, the changes that it has and
/// those that it must still get.
///
/// Its loop's shard calls it for changes and on every tick; it has no task and no timer.
final class SocketSession {
    enum Phase {
        /// Waits for a token.
        case anonymous
        /// Presence is being registered and the inbox read.
        case opening
        case open
        /// The connection is closing or closed. A server that closes it has sent the reason.
        case closing
    }

    /// The most bytes of a token that waits for its check; the verifier accepts no longer ones.
    private static let longestToken = 8_192
    /// The most calls that may wait for the first sync.
    private static let mostEarlyCalls = 16

    /// How often an unchanged bookmark is refreshed; it would expire after an hour.
    private static let bookmarkRefresh: TimeAmount = .minutes(10)

    let connection: String
    /// Tells the user's clients apart; nil in dialects whose clients say which version they have.
    let client: String?
    let openedAt: NIODeadline
    /// When the client last sent a message or polled; used only if ``client`` is set.
    private var lastHeard: Timestamp
    let shard: HubShard
    /// Nil once the connection has closed.
    private(set) var wire: (any SocketWire)?

    var phase: Phase
    var identity: SocketIdentity?
    /// The socket's turn to be opened; nil until it waits for one.
    var turn: OpeningTurn?
    /// Whether presence lists the socket, or soon will.
    var isRegistered: Bool { self.turn?.isTaken ?? false }
    private var inbox = InboxSync()
    var proofs = ProofLedger()
    /// Calls that came before the inbox was read, in order.
    private var earlyCalls: [(message: ClientMessage, reference: [UInt8]?)] = []
    /// The last bookmark that was recorded; nil if the client has returned since.
    private(set) var recorded: (bookmark: SocketBookmark, at: NIODeadline)?
    /// Whether the client has ended the connection on purpose.
    private var hasStopped = false
    var since: Int64?
    /// Tokens of this client that are being verified.
    var checks = 0
    var allowance: Int
    /// Messages not yet reported to the user's rate limit.
    var unreported = 0
    /// Active until the client says otherwise.
    var state = ConnectionPresence.State.active
    /// When it entered its state; nil if it never changed.
    var stateSince: Timestamp?

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
        self.lastHeard = shard.now()
        self.allowance = shard.configuration.messageBurst
    }

    var dialect: Dialect { self.wire?.dialect ?? .native }

    /// Begins the session once the connection is up.
    func begin(_ wire: any SocketWire) {
        // A failed write of the answer may have closed the connection.
        guard self.phase != .closing else { return }
        self.wire = wire
        self.shard.add(self)
        // A draining shard has closed the session.
        if self.phase == .opening, let identity { self.shard.open(self, identity: identity, since: self.since) }
    }

    /// Records that the client is there.
    func heard() { self.lastHeard = self.shard.now() }

    /// Records that the client ended the connection on purpose; its next one does not continue it.
    func clientStopped() { self.hasStopped = true }

    /// Ends the session of a closed connection, perhaps before it began.
    func end() {
        self.phase = .closing
        guard self.wire != nil else { return }
        _ = self.inbox.release()
        self.turn?.giveUp()
        self.shard.remove(self)
        self.wire = nil
    }

    // MARK: Answers of the backend

    /// Opens the session after presence was registered and the inbox read.
    func opened(_ snapshot: InboxSnapshot) {
        guard self.phase == .opening else { return self.removePresence() }
        self.phase = .open
        if self.state != .active, let identity { self.shard.reportState(of: self, user: identity.user) }
        self.proofs.begin(at: snapshot.seenBefore)
        self.wire?.welcome(connection: self.connection, version: snapshot.version)
        self.sync(snapshot)
        self.releaseHeld()
        let calls = self.earlyCalls
        self.earlyCalls = []
        for call in calls { self.handle(call.message, reference: call.reference) }
        self.readNext()
        self.flush()
    }

    /// Closes the socket because presence could not be registered or the inbox not read.
    func openingFailed() {
        self.removePresence()
        self.failed()
    }

    /// Removes the presence of a socket that left while it was being registered.
    ///
    /// Its departure may have been recorded before the registration. If the client stopped, also
    /// removes the bookmark that the opening stored.
    private func removePresence() {
        guard self.wire == nil, let identity else { return }
        self.shard.departed(self, user: identity.user)
        if self.hasStopped, let bookmark = self.bookmark(hasLeft: true) { self.shard.enqueue(bookmark) }
    }

    /// Closes the socket; the client may try again.
    func failed() {
        self.close(.tryAgainLater)
        self.flush()
    }

    /// Applies the requested changes; nil if there were none.
    func caughtUp(_ snapshot: InboxSnapshot?, answering resumption: Resumption?) {
        self.inbox.catchUp.ended(isReset: snapshot?.isReset ?? false)
        guard self.phase == .open else { return }
        if let snapshot { self.sync(snapshot, answering: resumption) }
        self.releaseHeld()
        self.readNext()
        self.flush()
    }

    /// Retries a read of changes that failed.
    func catchUpFailed(_ resumption: Resumption?) {
        self.inbox.catchUp.failed(resumption)
        self.readNext()
        self.flush()
    }

    /// Reads the changes that were published while this node received none.
    ///
    /// A read or an opening that is under way may have missed them, so another read follows it.
    func missedChanges() {
        self.inbox.catchUp.wantChanges()
        self.readNext()
    }

    /// Queues a client's request for changes, behind the first sync and earlier requests.
    ///
    /// - Returns: false if too many wait.
    func resume(_ resumption: Resumption) -> Bool {
        guard self.inbox.catchUp.want(resumption) else { return false }
        self.readNext()
        return true
    }

    /// Defers a call until the inbox was read, so that its answer follows the first sync.
    ///
    /// - Returns: false if too many wait.
    func deferCall(_ message: ClientMessage, reference: [UInt8]?) -> Bool {
        guard self.earlyCalls.count < Self.mostEarlyCalls else { return false }
        self.earlyCalls.append((message, reference))
        return true
    }

    /// Requests the newest unread notifications and repeats the request until it is answered.
    func resync() {
        self.inbox.catchUp.wantReset()
        self.readNext()
    }

    /// Begins the most urgent read of the inbox, unless one is under way.
    private func readNext() {
        while self.phase == .open, let last = self.inbox.last, let user = self.identity?.user,
            let read = self.inbox.catchUp.begin()
        {
            let (since, resumption): (Int64, Resumption?) =
                switch read {
                // The version -1, below that of any inbox, is answered with a reset.
                case .reset: (-1, nil)
                case .resumption(let resumption): (resumption.version, resumption)
                case .changes: (last, nil)
                }
            guard !self.shard.requestCatchUp(self, user: user, since: since, answering: resumption) else { return }
            self.inbox.catchUp.refused(read)
            // The next tick reads the changes, so this is no overflow.
            if case .changes = read { return }
            SocketMetrics.overflows.increment()
            guard let resumption else { return self.close(.tryAgainLater) }
            self.sayBusy(resumption.reference)
        }
    }

    /// Sends the answer to a client's message.
    func answer(_ answer: SocketAnswer, reference: [UInt8]?) {
        guard self.phase == .open else { return }
        self.wire?.answer(answer, to: reference)
        self.flush()
    }

    /// Sends what the client lacks of a snapshot.
    private func sync(_ snapshot: InboxSnapshot, answering resumption: Resumption? = nil) {
        let lacking = self.inbox.apply(snapshot, isRequested: resumption != nil, for: self.dialect)
        guard let lacking else { return }
        self.wire?.sync(lacking, answering: resumption?.reference)
        for item in lacking.items where item.awaitsProof { self.awaitProof(item.id, lane: item.lane) }
        if self.client != nil { self.proofs.want() }
    }

    // MARK: Changes

    /// Delivers a change of the inbox or an event; the shard's next flush writes it.
    func deliver(_ change: LoopChange) {
        switch self.phase {
        case .anonymous, .closing: return
        case .opening, .open: self.receive(change, isNew: true)
        }
    }

    /// Carries out the verdict on a change; only a new one releases others or begins a read.
    private func receive(_ change: LoopChange, isNew: Bool) {
        switch self.inbox.judge(change, for: self.dialect) {
        case .send: self.transmit(change)
        case .sendNext:
            self.transmit(change)
            if isNew { self.releaseHeld() }
        case .known: self.awaitProof(of: change)
        case .skip: break
        case .hold: self.hold(change)
        case .read:
            self.hold(change)
            if isNew { self.readMissing() }
        case .drop: SocketMetrics.incomplete.increment()
        }
    }

    private func hold(_ change: LoopChange) {
        if !self.inbox.hold(change, now: .now()) { SocketMetrics.dropped.increment() }
    }

    private func releaseHeld() {
        for change in self.inbox.release() { self.receive(change, isNew: false) }
    }

    private func transmit(_ change: LoopChange) {
        self.wire?.change(change)
        self.awaitProof(of: change)
    }

    // MARK: Proof

    private func awaitProof(of change: LoopChange) {
        if change.frame.isNotification { self.awaitProof(change.frame.id, lane: change.frame.awaitingLane) }
    }

    private func awaitProof(_ id: NotificationID, lane: Lane?) {
        // Without a proof, the deadline passes and the push goes out.
        guard self.wire?.provesReceipt == true else { return }
        if !self.proofs.await(id, lane: lane) { SocketMetrics.unproven.increment() }
    }

    /// Handles the client's proof that it has everything sent before this number was requested.
    func proven(_ sequence: UInt64) { self.report(self.proofs.confirm(sequence)) }

    /// Returns the version up to which the client has seen its inbox; without a version if the
    /// client stopped.
    ///
    /// Returns nil if the dialect keeps no bookmarks or the inbox was not read.
    func bookmark(hasLeft: Bool) -> SocketBookmark? {
        guard let client, let identity else { return nil }
        var version: Int64?
        if !self.hasStopped {
            guard let wire, let seen = self.proofs.seen else { return nil }
            // Without proofs, whatever was written counts as seen.
            version = wire.provesReceipt || wire.hasUnwritten ? seen : self.inbox.last ?? seen
        }
        return SocketBookmark(
            user: identity.user,
            connection: self.connection,
            client: client,
            version: version,
            lastHeard: hasLeft ? self.lastHeard : nil
        )
    }

    /// Records the bookmark if it has changed or would expire.
    ///
    /// A client that is away counts as gone: its next connection may come before this one ends.
    func recordBookmark(now: NIODeadline) {
        guard self.phase == .open, let bookmark = self.bookmark(hasLeft: self.wire?.isAway ?? false) else { return }
        if let recorded, bookmark.repeats(recorded.bookmark), now - recorded.at < Self.bookmarkRefresh { return }
        self.recorded = (bookmark, now)
        self.shard.enqueue(bookmark)
    }

    /// Handles the return of a client that was away.
    ///
    /// Another connection may have used up the bookmark meanwhile, so the next one is always
    /// recorded.
    func returned() { self.recorded = nil }

    func report(_ proven: [ProofLedger.Awaited]) {
        guard let identity else { return }
        self.shard.enqueueProofs(proven, of: identity.user)
    }

    // MARK: Writing

    /// Writes everything that has gathered, with one proof request for all of it.
    func flush() {
        if self.proofs.isWanted, self.phase != .closing {
            let sequence = self.proofs.nextSequence(through: self.client == nil ? nil : self.inbox.last)
            self.wire?.requestProof(sequence)
        }
        self.wire?.flush()
    }

    /// Requests a proof with the next flush, to check that the client is still there.
    func probe() {
        guard self.phase != .closing else { return }
        self.proofs.want()
    }

    /// Tells the client why and ends the connection.
    func close(_ end: SocketEnd) {
        guard self.phase != .closing else { return }
        self.phase = .closing
        self.wire?.close(end)
    }

    /// Closes a client whose unread output exceeds the limit.
    func closeAsTooSlow() {
        SocketMetrics.slowReaders.increment()
        self.close(.tooSlow)
    }

    /// Tells the client to reconnect to another node.
    func sayGoodbye(reconnectAfter: Duration) {
        self.close(.restart(reconnectAfter: reconnectAfter))
        self.wire?.flush()
    }

    /// Ends the connection at once.
    func drop() {
        self.wire?.drop()
    }

    // MARK: Time

    /// Handles timeouts, token expiry and pings.
    func tick(now: NIODeadline, wallClock: Timestamp) {
        let configuration = self.shard.configuration
        self.allowance = min(configuration.messageBurst, self.allowance + configuration.messagesPerSecond)
        if self.phase != .closing {
            if let expiresAt = self.identity?.expiresAt, expiresAt <= wallClock {
                if self.wire?.awaitsFreshToken() != true { self.close(.expired) }
            } else if self.phase == .anonymous, now - self.openedAt > TimeAmount(configuration.authentication) {
                // The token came in time but is still being verified.
                self.close(self.checks > 0 ? .tryAgainLater : .unauthorized("no credential came in time"))
            }
        }
        self.recordBookmark(now: now)
        self.readNext()
        self.wire?.tick(now: now)
        self.flush()
    }

    /// Reads the missing changes if a change has waited too long for them.
    func catchUpIfOverdue(now: NIODeadline) {
        let limit = TimeAmount(self.shard.configuration.holdTime)
        if self.phase == .open, self.inbox.isOverdue(now: now, limit: limit) { self.readMissing() }
    }

    /// Reads the changes that the client may lack, unless a read under way may bring them.
    private func readMissing() {
        self.inbox.catchUp.wantMissing()
        self.readNext()
    }

    var isHolding: Bool { self.inbox.isHolding && self.phase != .closing }
    var lastVersion: Int64? { self.phase == .open ? self.inbox.last : nil }
}

/// Messages from the client.
extension SocketSession {
    /// Counts a message of the client; false, and the end of the connection, if it sends too many.
    func admitMessage() -> Bool {
        guard self.phase != .closing else { return false }
        guard self.allowance > 0 else {
            self.close(.policyViolation("too many messages"))
            return false
        }
        self.allowance -= 1
        self.unreported += 1
        guard self.unreported >= self.shard.configuration.messagesPerReport, let user = self.identity?.user else {
            return true
        }
        let count = self.unreported
        self.unreported = 0
        if self.shard.admits(messages: count, of: user) { return true }
        self.close(.policyViolation("too many messages on all sockets of this user"))
        return false
    }

    /// Handles a message; `reference` is returned with the answer.
    func handle(_ message: ClientMessage, reference: [UInt8]?) {
        switch (message, self.identity) {
        case (.auth(let token), _):
            self.checks += 1
            guard token.utf8.count <= Self.longestToken else {
                return self.refused(SocketRefusal(status: 401, reason: "the token is too long"), reference: reference)
            }
            guard !self.shard.request(.authenticate(token: token), of: self, reference: reference) else { return }
            self.checks -= 1
            self.sayBusy(reference)
        case (_, nil):
            self.wire?.answer(.error("send auth first"), to: reference)
        case (.resume(let version), _):
            if !self.resume(Resumption(version: version, reference: reference)) { self.sayBusy(reference) }
        case (.resync, _):
            self.resync()
            self.wire?.answer(.done, to: reference)
        case (.acknowledge(let ids), _):
            self.report(self.proofs.acknowledge(Set(ids)))
            self.wire?.answer(.done, to: reference)
        case (.focus(let isActive), .some(let identity)):
            self.focus(isActive, identity)
            self.wire?.answer(.done, to: reference)
        case (.read, .some) where self.phase == .opening, (.unread, .some) where self.phase == .opening:
            if !self.deferCall(message, reference: reference) { self.sayBusy(reference) }
        case (.read(let ids, let isBulk), .some(let identity)):
            let request = MarkReadRequest(user: identity.user, ids: ids, isBulk: isBulk)
            self.request(.markRead(request), reference)
        case (.unread, .some(let identity)):
            self.request(.unread(user: identity.user), reference)
        }
    }

    /// Records the focus of a client; one that sends no focus messages stays active.
    private func focus(_ isActive: Bool, _ identity: SocketIdentity) {
        let state: ConnectionPresence.State = isActive ? .active : .idle
        guard state != self.state else { return }
        self.state = state
        self.stateSince = self.shard.now()
        // Presence is not registered before the session is open; then `opened` reports the state.
        if self.phase == .open { self.shard.reportState(of: self, user: identity.user) }
    }

    private func request(_ kind: SocketRequest.Kind, _ reference: [UInt8]?) {
        if !self.shard.request(kind, of: self, reference: reference) { self.sayBusy(reference) }
    }

    func sayBusy(_ reference: [UInt8]?) {
        self.wire?.answer(.busy("the server is busy, try again"), to: reference)
    }
}

/// The credentials of a socket.
extension SocketSession {
    /// Handles an accepted token.
    func authenticated(_ identity: SocketIdentity, reference: [UInt8]?) {
        self.checks -= 1
        switch self.phase {
        case .anonymous:
            self.identity = identity
            self.phase = .opening
            self.wire?.answer(.done, to: reference)
            self.shard.identified(self, identity: identity)
            self.shard.open(self, identity: identity, since: self.since)
        case .opening, .open:
            guard ExactText(identity.user) == self.identity.map({ ExactText($0.user) }) else {
                self.wire?.answer(.error("the token belongs to another user"), to: reference)
                break
            }
            self.renew(identity)
            self.wire?.answer(.done, to: reference)
        case .closing: break
        }
        self.flush()
    }

    /// Handles a refused token.
    func refused(_ refusal: SocketRefusal, reference: [UInt8]?) {
        self.checks -= 1
        // 503: the token could not be checked now and may be good.
        let isTemporary = refusal.status == 503
        self.wire?.answer(isTemporary ? .busy(refusal.reason) : .error(refusal.reason), to: reference)
        if self.phase == .anonymous { self.close(isTemporary ? .tryAgainLater : .unauthorized(refusal.reason)) }
        self.flush()
    }

    /// Adopts a newer token of the same user.
    ///
    /// Requests and checks may overtake each other, so an older token can come later; it is
    /// ignored.
    func renew(_ identity: SocketIdentity) {
        guard self.phase != .closing, let current = self.identity,
            ExactText(identity.user) == ExactText(current.user), identity.isNewer(than: current)
        else { return }
        self.identity = identity
    }

    /// Closes the socket if its token was issued before a moment, or at an unknown time, and
    /// removes its bookmark.
    ///
    /// The erasure of a user revokes tokens first, and would miss a bookmark that is stored later.
    func revoke(before: Timestamp) {
        guard let identity, identity.issuedAt.map({ $0 < before }) ?? true else { return }
        self.clientStopped()
        self.close(.unauthorized("the token was revoked"))
        self.flush()
    }
}
