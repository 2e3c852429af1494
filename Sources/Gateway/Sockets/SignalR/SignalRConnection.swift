// Carillon · SignalRConnection.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import CoreMetrics
import NIOCore
import Protocols

/// One connection of a client to a hub over any transport; confined to the event loop of its first
/// request.
///
/// With stateful reconnect it outlives its WebSocket and can continue over one on another loop.
package final class SignalRConnection {
    /// The transport's connection to the client.
    enum Link {
        /// Not yet connected, or disconnected.
        case none
        case webSocket(LoopReference<SignalRSocket>, number: UInt64)
        case eventStream(HTTPExchange)
        case longPolling
    }

    /// The most requests that delay the server's first messages; one more releases them.
    private static let mostEarlyRequests = 8
    /// The time without requests after the handshake until the server's first messages are written,
    /// over Server-Sent Events and long polling.
    private static let openingQuiet = Duration.milliseconds(200)
    /// The most messages before the handshake is complete; one more cuts the transport.
    private static let mostStrayMessages = 120

    /// Secret: a client with this id and the right credential can use the connection.
    let id: String
    let transport: SignalRTransport
    let node: SignalRNode
    package let eventLoop: any EventLoop
    var state: SignalRStateMachine
    private(set) var application: (any SignalRApplication)?
    var link = Link.none
    /// The state of long polling, and the polls that wait for an answer.
    var polling: SignalRPollingState?
    var polls: [UInt64: LoopReference<HTTPExchange>] = [:]
    /// The proofs that later polls will give.
    private var proofs = PolledProofs()
    private var outbound = ByteBuffer()
    private var lastProof: UInt64 = 0
    private var provenProof: UInt64 = 0
    /// False for version 0: signalrcore, which uses it, takes a WebSocket's pings for messages and
    /// breaks.
    private var answersPings = true
    private var closeCode = WebSocketCloseCode.normal
    private var isEnding = false
    private var strayMessages = 0
    /// Whether reading from the WebSocket is paused because too many calls wait.
    private var isPaused = false
    /// Releases ``heldRecords``; nil unless the client may still be in its `start()`.
    private var release: TimeLimit?
    private var heldRecords: [[UInt8]] = []
    private var heldBytes = 0
    /// Requests since the handshake while records are held.
    private var earlyRequests = 0

    init(
        id: String,
        offer: SignalRDirectory.Offer,
        transport: SignalRTransport,
        node: SignalRNode,
        eventLoop: any EventLoop
    ) {
        self.id = id
        self.transport = transport
        self.node = node
        self.eventLoop = eventLoop
        let now = node.now()
        self.state = SignalRStateMachine(
            configuration: node.configuration.connection,
            offersStatefulReconnect: offer.usesStatefulReconnect && transport == .webSockets,
            hasInherentKeepAlive: transport == .longPolling,
            now: now
        )
        if transport == .longPolling {
            self.link = .longPolling
            self.polling = SignalRPollingState(bufferBytes: node.configuration.webSocket.maximumOutbound, now: now)
        }
    }

    var now: Milliseconds { self.node.now() }

    func begin(_ application: any SignalRApplication) { self.application = application }

    /// Adopts a valid credential of the owner.
    func renew(_ permit: SignalRPermit) {
        if let application { permit.renew(application) }
    }

    // MARK: For the application

    /// Answers a call; ignored if the call is no longer running.
    package func complete(_ call: UInt64, _ outcome: SignalROutcome) {
        self.perform(self.state.complete(call, outcome, now: self.now))
    }

    /// Sends an item of a stream with the next ``flush()``.
    ///
    /// - Returns: false once the client wants no more items; the call must still be completed.
    package func sendItem(_ item: JSONValue, of call: UInt64) -> Bool {
        guard let actions = self.state.sendItem(item, of: call, now: self.now) else { return false }
        self.perform(actions)
        return true
    }

    /// Sends a record with the next ``flush()``.
    package func send(_ record: SignalRRecord) {
        if self.admits(record) { self.write(record.bytes) }
    }

    /// Sends records that other connections share.
    func send(_ bundle: SignalRBundle) {
        guard case .webSocket(let socket, _) = self.link else { return bundle.records.forEach { self.send($0) } }
        let admitted = bundle.records.filter { self.admits($0) }
        guard admitted.count == bundle.records.count else { return admitted.forEach { self.write($0.bytes) } }
        let frame = bundle.frame
        socket.call { $0.send(frame: frame) }
    }

    private func admits(_ record: SignalRRecord) -> Bool {
        switch self.state.push(record, now: self.now) {
        case .write: return true
        case .refused(.resendBufferFull):
            self.tooSlow()
            return false
        case .held, .refused: return false
        }
    }

    /// Whether the client ever answers ``requestProof(_:)``.
    var provesReceipt: Bool {
        switch self.transport {
        case .webSockets: self.answersPings
        case .longPolling: true
        case .serverSentEvents: false
        }
    }

    /// Asks the client to prove that it has everything sent so far.
    ///
    /// A WebSocket client proves it by a pong, a polling client by its next poll, or by its DELETE
    /// after a Close message. Clients over Server-Sent Events and of version 0 prove nothing.
    package func requestProof(_ sequence: UInt64) {
        self.lastProof = sequence
        // The release of the held records requests it again.
        guard self.release == nil else { return }
        switch self.link {
        case .webSocket(let socket, _):
            if self.answersPings { socket.call { $0.requestProof(sequence) } }
        case .longPolling:
            if let records = self.polling?.recordsTaken { self.proofs.await(sequence, after: records) }
        case .eventStream, .none: break
        }
    }

    /// Writes everything that has gathered.
    package func flush() {
        switch self.link {
        case .none: break
        case .webSocket(let socket, _): socket.call { $0.flush() }
        case .eventStream(let exchange):
            guard self.outbound.readableBytes > 0 else { return }
            exchange.write(self.outbound)
            self.outbound = ByteBuffer()
            if exchange.backlog > self.node.configuration.webSocket.maximumOutbound { self.tooSlow() }
        case .longPolling: self.performPolling { $0.flush(now: self.now) }
        }
    }

    /// Tells the client why and ends the connection.
    ///
    /// - Parameters:
    ///   - error: nil for a regular end.
    ///   - allowReconnect: whether a client that reconnects automatically should do so.
    ///   - code: the close code of a WebSocket.
    package func close(error: String? = nil, allowReconnect: Bool = false, code: WebSocketCloseCode = .normal) {
        self.closeCode = code
        self.perform(self.state.close(error: error, allowReconnect: allowReconnect, now: self.now))
    }

    /// Answers the waiting poll with 401, so that the client polls again with a fresh credential;
    /// if no poll comes, the silence limit ends the connection.
    ///
    /// - Returns: false if the connection does not poll.
    package func refusePolls() -> Bool {
        guard case .longPolling = self.link, !self.isEnding else { return false }
        self.performPolling { $0.refuse(now: self.now) }
        return true
    }

    /// Cuts the transport; the connection continues only if its client can reattach.
    package func cut() {
        switch self.link {
        case .none: break
        case .webSocket(let socket, _): socket.call { $0.drop() }
        case .eventStream(let exchange):
            exchange.onAbort = nil
            exchange.end()
            self.transportLost()
        case .longPolling: self.performPolling { $0.delete() }
        }
    }

    /// Ends the connection at once.
    package func drop() {
        if !self.state.isClosed { self.close() }
        self.cut()
        self.tearDown()
    }

    // MARK: From the transport

    func attach(_ socket: LoopReference<SignalRSocket>, _ number: UInt64) {
        self.link = .webSocket(socket, number: number)
    }

    /// Continues over another WebSocket; false if it cannot.
    func reattach(_ socket: LoopReference<SignalRSocket>, _ number: UInt64) -> Bool {
        guard !self.isEnding, let actions = self.state.reattach(now: self.now) else { return false }
        if self.isAway { self.application?.signalRReturned() }
        let old = self.link
        // Set first, so that the end of the old socket does not count as the loss of the client.
        self.link = .webSocket(socket, number: number)
        self.isPaused = false
        if case .webSocket(let old, _) = old { old.call { $0.drop() } }
        self.perform(actions)
        if self.lastProof > self.provenProof { self.requestProof(self.lastProof) }
        self.flush()
        return true
    }

    /// Receives bytes of a WebSocket; ignores those of one that was replaced.
    func receive(_ bytes: [UInt8], from number: UInt64) {
        guard case .webSocket(_, number) = self.link else { return }
        self.receive(bytes)
    }

    func receive(_ bytes: [UInt8]) {
        // Part of a record counts like a whole one.
        let messages = max(1, bytes.count { $0 == SignalRRecordSplitter.separator })
        for _ in 0..<messages { self.heard() }
        self.delayRelease()
        self.perform(self.state.receive(bytes, now: self.now))
    }

    /// Counts a message of the client.
    func heard() {
        guard !self.state.isOpen else {
            self.application?.signalRHeard()
            return
        }
        guard !self.state.isClosed else { return }
        // Until the handshake is complete, no application limits messages or closes slow readers.
        self.strayMessages += 1
        if self.strayMessages > Self.mostStrayMessages { self.cut() }
    }

    func readComplete() {
        self.application?.signalRReadComplete()
        self.flush()
    }

    func proven(_ sequence: UInt64) {
        guard sequence > self.provenProof, sequence <= self.lastProof else { return }
        self.provenProof = sequence
        self.application?.signalRProven(sequence)
    }

    func tooSlow() {
        guard !self.isEnding else { return }
        self.application?.signalRIsTooSlow()
    }

    /// Handles a client's close of its WebSocket.
    ///
    /// Only 1001 says that the client stopped: its page is gone. It may close with other codes
    /// because it believes the connection lost, and with stateful reconnect it may return.
    func socketLeft(_ code: UInt16?, _ number: UInt64) {
        guard case .webSocket(_, number) = self.link, code == WebSocketCloseCode.goingAway.rawValue,
            !self.state.canReattach
        else { return }
        self.application?.signalRStopped()
    }

    func socketClosed(_ number: UInt64) {
        guard case .webSocket(_, number) = self.link else { return }
        self.transportLost()
    }

    func transportLost() {
        self.link = .none
        guard !self.isEnding else { return self.tearDown() }
        self.perform(self.state.transportLost(now: self.now))
        if self.isAway { self.application?.signalRLost() }
    }

    /// Whether the connection waits for a client that may be gone.
    var isAway: Bool {
        switch self.link {
        case .none: self.state.canReattach
        case .longPolling: self.polling?.isAbandoned ?? false
        case .webSocket, .eventStream: false
        }
    }

    func tick() {
        if !self.isEnding {
            self.perform(self.state.tick(now: self.now))
            self.flush()
        }
        self.performPolling { $0.tick(now: self.now) }
    }

    // MARK: Actions

    func perform(_ actions: [SignalRAction]) {
        for action in actions {
            switch action {
            case .write(let bytes): self.write(bytes)
            case .opened(let version):
                self.answersPings = version > 0
                self.node.directory.opened(self.id)
                if self.transport != .webSockets { self.holdRecords() }
                self.application?.signalROpened(self)
            case .invoke(let call):
                // A client that calls has finished its start.
                self.releaseRecords()
                self.application?.signalRInvoked(call)
            case .end(let end): self.conclude(end)
            }
        }
        self.adjustReading()
    }

    /// Stops reading from a WebSocket while too many calls wait.
    private func adjustReading() {
        guard case .webSocket(let socket, _) = self.link, self.state.isCongested != self.isPaused else { return }
        let isPaused = !self.isPaused
        self.isPaused = isPaused
        if isPaused { SignalRMetrics.paused.increment() }
        socket.call { $0.setReading(!isPaused) }
    }

    // MARK: The start

    /// Holds the server's messages until the client's `start()` has returned.
    ///
    /// A client has started when the handshake and its own requests are answered; some send a ping
    /// after the handshake. Over HTTP, the server's messages travel apart from these answers, and
    /// could arrive before the app has registered its handlers. So they wait until the client has
    /// sent no request for a while.
    private func holdRecords() {
        let release = self.release ?? TimeLimit(on: self.eventLoop)
        self.release = release
        release.set(Self.openingQuiet) { [weak self] in
            guard let self else { return }
            // The client has not fetched the handshake's answer yet.
            let isUnanswered = self.polling.map { $0.recordsAnswered == 0 } ?? false
            if isUnanswered { self.holdRecords() } else { self.releaseRecords() }
        }
    }

    private func delayRelease() {
        guard self.release != nil else { return }
        self.earlyRequests += 1
        if self.earlyRequests > Self.mostEarlyRequests { self.releaseRecords() } else { self.holdRecords() }
    }

    private func releaseRecords() {
        guard self.release != nil else { return }
        self.release = nil
        let records = self.heldRecords
        self.heldRecords = []
        self.heldBytes = 0
        for record in records { self.write(record) }
        if self.lastProof > self.provenProof { self.requestProof(self.lastProof) }
        self.flush()
    }

    /// Whether messages wait for the end of the client's start.
    package var holdsRecords: Bool { !self.heldRecords.isEmpty }

    private func hold(_ bytes: [UInt8]) {
        let limit = self.node.configuration.webSocket.maximumOutbound
        let exceededBefore = self.heldBytes > limit
        self.heldRecords.append(bytes)
        self.heldBytes += bytes.count
        if !exceededBefore, self.heldBytes > limit { self.tooSlow() }
    }

    private func write(_ bytes: [UInt8]) {
        guard self.release == nil else { return self.hold(bytes) }
        switch self.link {
        case .none: break
        case .webSocket(let socket, _): socket.call { $0.send(bytes) }
        case .eventStream:
            self.outbound.writeBytes(EventStreamEncoder.event(data: bytes, lineEnd: .carriageReturnLineFeed))
        case .longPolling: self.performPolling { $0.write(bytes) }
        }
    }

    /// Ends the connection; the transport closes after what was written.
    private func conclude(_ end: SignalREnd) {
        guard !self.isEnding else { return }
        // The application counts it and sets the close code.
        if end == .tooSlow { self.application?.signalRIsTooSlow() }
        self.isEnding = true
        if end == .client {
            self.application?.signalRStopped()
            // Its DELETE may overtake the last answer, so it proves nothing.
            self.proofs.removeAll()
        }
        // Held records can no longer be written, so they stay held and count as missed.
        if case .none = self.link { return self.tearDown() }
        self.releaseRecords()
        switch self.link {
        case .none: break
        case .webSocket(let socket, _):
            let code = end.isFault ? WebSocketCloseCode.policyViolation : self.closeCode
            socket.call { $0.close(code) }
        case .eventStream(let exchange):
            self.flush()
            exchange.onAbort = nil
            exchange.end()
            self.tearDown()
        case .longPolling: self.performPolling { $0.close(now: self.now) }
        }
    }

    /// Releases everything that the connection holds.
    func tearDown() {
        guard let application else { return }
        self.isEnding = true
        self.release = nil
        self.application = nil
        self.link = .none
        self.polling = nil
        self.node.end(self, on: self.eventLoop)
        application.signalRClosed()
    }
}

extension SignalREnd {
    fileprivate var isFault: Bool {
        switch self {
        case .fault, .handshakeRefused, .handshakeTimeout: true
        case .client, .server, .clientTimeout, .tooSlow, .transportLost, .detachedTooLong: false
        }
    }
}

/// HTTP requests for a connection: polls, messages, deletion.
extension SignalRConnection {
    /// The connection's state, as far as a request needs it.
    var standing: SignalRHubRequest.Standing {
        let isAttached = if case .none = self.link { false } else { true }
        return SignalRHubRequest.Standing(
            transport: self.transport,
            isAttached: isAttached,
            canReattach: self.state.canReattach
        )
    }

    /// Serves a request for this connection.
    ///
    /// - Returns: the answer; nil if it comes later.
    func serve(
        _ request: SignalRHubRequest,
        _ body: [UInt8],
        number: UInt64,
        reply: LoopReference<HTTPExchange>
    ) -> SignalRResponse? {
        switch request.verdict(self.standing) {
        case .refuse(let response): return response
        case .poll:
            self.poll(number, mark: request.mark, reply)
            return nil
        case .send:
            self.receive(body)
            self.readComplete()
            return .sent
        case .delete:
            // After our close message, clients also send DELETE before they reconnect.
            if !self.isEnding {
                self.application?.signalRStopped()
            } else if let polling, polling.hasAnsweredClose {
                self.settle(polling.recordsAnswered)
            }
            self.performPolling { $0.delete() }
            return .deleted
        case .create, .attach, .reattach, .replace: return .refusal(409)
        }
    }

    /// Handles a long-polling GET.
    func poll(_ number: UInt64, mark: PollMark?, _ reply: LoopReference<HTTPExchange>) {
        if self.isAway { self.application?.signalRReturned() }
        self.application?.signalRPolled()
        self.polls[number] = reply
        self.performPolling { polling in
            let actions = polling.poll(number, mark: mark, now: self.now)
            // Before the actions, because they may end the connection.
            self.settle(polling.recordsProven)
            return actions
        }
    }

    /// Reports the proofs that the client gives by having this many records.
    private func settle(_ records: UInt64) {
        if let proven = self.proofs.settle(records) { self.proven(proven) }
    }

    /// Handles a client that left before its GET was answered.
    func pollLost(_ number: UInt64) {
        self.polls[number] = nil
        self.performPolling { $0.pollLost(number, now: self.now) }
        if self.isAway { self.application?.signalRLost() }
    }

    func performPolling(_ event: (inout SignalRPollingState) -> [SignalRPollingAction]) {
        guard var polling = self.polling else { return }
        let actions = event(&polling)
        self.polling = polling
        for action in actions {
            switch action {
            case .answer(let poll, let response):
                self.polls.removeValue(forKey: poll)?.call { $0.respond(response) }
            case .end(let end):
                if end == .overflow { self.tooSlow() }
                self.transportLost()
                self.tearDown()
            }
        }
    }
}

/// Records for many connections: encoded once, and framed once for all WebSockets.
struct SignalRBundle: Sendable {
    let records: [SignalRRecord]
    let frame: ByteBuffer

    init(_ records: [SignalRRecord]) {
        self.records = records
        self.frame = WebSocketFraming.text(records.flatMap(\.bytes))
    }
}
