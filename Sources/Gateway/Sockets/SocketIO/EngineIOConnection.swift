// Carillon · EngineIOConnection.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols

/// One client's Engine.IO connection: runs its session's actions on requests and WebSockets.
///
/// Confined to the event loop of its first request; input from other loops is sent here. It has no
/// task, and a timer only for deadlines within a second.
package final class EngineIOConnection {
    var eventLoop: any EventLoop { self.registry.eventLoop }
    let sid: String
    private let server: EngineIOServer
    private let registry: EngineIORegistry
    private var state: EngineIOStateMachine
    private var application: (any EngineIOApplication)?
    private var exchanges: [EngineIOExchange] = []
    private var outlets: [EngineIOOutlet] = []
    /// The proofs that later polls will give.
    private var proofs = PolledProofs()
    private var pending: [EngineIOAction] = []
    private var isPerforming = false
    /// Whether the application has identified the client.
    private var isWelcome = false
    /// The address that the connection counts for until its client is identified.
    private var unidentifiedAddress: ClientAddress?
    /// When its own timer fires.
    private var scheduled: Milliseconds = .max

    /// Opens a connection by a poll.
    ///
    /// - Parameter address: the client's address, for which the connection is counted already.
    init(
        _ server: EngineIOServer,
        _ registry: EngineIORegistry,
        sid: String,
        polling exchange: EngineIOExchange,
        mark: PollMark?,
        unidentified address: ClientAddress?
    ) {
        self.server = server
        self.unidentifiedAddress = address
        self.registry = registry
        self.sid = sid
        self.exchanges = [exchange]
        self.state = EngineIOStateMachine(
            sid: sid,
            polling: exchange.carrier,
            mark: mark,
            configuration: server.configuration,
            now: systemUptime(),
            into: &self.pending
        )
    }

    /// Opens a connection on a WebSocket.
    init(_ server: EngineIOServer, _ registry: EngineIORegistry, outlet: EngineIOOutlet) {
        self.server = server
        self.registry = registry
        self.sid = server.makeSid()
        self.outlets = [outlet]
        self.state = EngineIOStateMachine(
            sid: self.sid,
            webSocket: outlet.carrier,
            configuration: server.configuration,
            now: systemUptime(),
            into: &self.pending
        )
    }

    /// Sends the handshake and hands the connection to the application.
    func begin(_ application: any EngineIOApplication) {
        self.application = application
        self.registry.add(self)
        self.perform()
        application.engineIOOpened(self)
        self.flush()
    }

    // MARK: For the application

    /// Marks the client as identified.
    ///
    /// The connection no longer counts for its address. Over polling, a later close waits until the
    /// client has learned of it.
    package func welcome() {
        self.isWelcome = true
        self.releaseAddress()
    }

    private func releaseAddress() {
        guard let address = self.unidentifiedAddress else { return }
        self.unidentifiedAddress = nil
        self.server.unidentified.release(address)
    }

    /// Sends messages, which stay together and in order.
    package func send(_ messages: [EngineIOMessage]) {
        self.run { state, _, actions in state.send(messages, into: &actions) }
    }

    /// Sends one message as a WebSocket frame, packet type included, that connections share.
    func send(frame: ByteBuffer) {
        // Actions that wait must go first.
        if self.pending.isEmpty, let carrier = self.state.writing(messages: 1), let outlet = self.outlet(carrier) {
            return outlet.enqueue(.frame(frame))
        }
        self.send([.text(Array(WebSocketFraming.payload(of: frame).readableBytesView.dropFirst()))])
    }

    /// Drops what no poll has fetched yet, because the client must no longer get it.
    func discardWaiting() {
        self.state.discardWaiting()
        self.proofs.removeAll()
    }

    /// Asks the client to prove that it has everything sent so far, by a WebSocket's pong or by its
    /// next poll.
    package func requestProof(_ sequence: UInt64) {
        if self.state.transport == .webSocket {
            self.outlets.last?.enqueue(.proof(sequence))
        } else {
            self.proofs.await(sequence, after: self.state.messagesSent)
        }
    }

    /// Writes everything that has gathered.
    package func flush() {
        for outlet in self.outlets { outlet.flush() }
    }

    /// Closes the connection; over polling, an identified client learns of it by its next request.
    func close(_ reason: EngineIOCloseReason) {
        // Keep nothing for unidentified clients, or a flood of them would fill the node.
        let lingers = self.isWelcome
        self.run { state, now, actions in
            state.close(reason, lingers: lingers, now: now, into: &actions)
        }
        self.flush()
    }

    /// Ends the connection at once.
    package func drop() {
        for outlet in self.outlets { outlet.enqueue(.drop) }
        self.close(.forcedClose)
        self.end(.forcedClose)
    }

    // MARK: Requests

    func poll(_ exchange: EngineIOExchange, mark: PollMark?) {
        self.exchanges.append(exchange)
        self.run { state, now, actions in
            state.pollRequested(exchange.carrier, mark: mark, now: now, into: &actions)
        }
        self.flush()
    }

    func pollAborted(_ carrier: EngineIOCarrier) {
        self.exchanges.removeAll { $0.carrier == carrier }
        self.run { state, _, actions in state.pollAborted(carrier, into: &actions) }
        self.flush()
    }

    /// Handles the head of a POST; its body follows in ``postCompleted(_:body:)``.
    func postStarted(_ exchange: EngineIOExchange, contentType: String?, contentLength: Int?) {
        self.exchanges.append(exchange)
        self.run { state, now, actions in
            // The actions also say whether the body is wanted.
            _ = state.postStarted(
                exchange.carrier, contentType: contentType, contentLength: contentLength, now: now, into: &actions)
        }
        self.flush()
    }

    func postCompleted(_ carrier: EngineIOCarrier, body: [UInt8]) {
        // Count these packets as on a WebSocket, until the application has closed the connection.
        let counted = self.isAwaitedPong(body) ? 0 : EngineIOPayload.countWithoutMessage(in: body)
        for _ in 0..<counted { guard self.receivedPing() else { break } }
        self.run { state, now, actions in state.postCompleted(carrier, body: body, now: now, into: &actions) }
        self.readComplete()
    }

    func postAborted(_ carrier: EngineIOCarrier) {
        self.exchanges.removeAll { $0.carrier == carrier }
        self.run { state, _, actions in state.postAborted(carrier, into: &actions) }
        self.flush()
    }

    // MARK: WebSockets

    func attach(_ outlet: EngineIOOutlet) {
        self.outlets.append(outlet)
        self.run { state, now, actions in state.webSocketOpened(outlet.carrier, now: now, into: &actions) }
        self.flush()
    }

    func received(text: [UInt8], on carrier: EngineIOCarrier) {
        // A packet without a message counts as a WebSocket's ping does, or a client could send them
        // without end. The answer to a ping does not count.
        guard text.first == UInt8(ascii: "4") || self.isAwaitedPong(text) || self.receivedPing() else { return }
        self.run { state, now, actions in state.webSocketText(carrier, text, now: now, into: &actions) }
    }

    func received(binary: [UInt8], on carrier: EngineIOCarrier) {
        self.run { state, now, actions in state.webSocketBinary(carrier, binary, now: now, into: &actions) }
    }

    private func isAwaitedPong(_ text: [UInt8]) -> Bool { self.state.awaitsPong && text == [UInt8(ascii: "3")] }

    func receivedPing() -> Bool { self.application?.engineIOReceivedPing() ?? false }

    func received(pong: UInt64) { self.application?.engineIOProven(pong) }

    func readComplete() {
        self.application?.engineIOReadComplete()
        self.flush()
    }

    func isTooSlow() { self.application?.engineIOIsTooSlow() }

    func shouldQuiesce() { self.application?.engineIOShouldQuiesce() }

    func closed(_ carrier: EngineIOCarrier, failed: Bool) {
        self.outlets.removeAll { $0.carrier == carrier }
        self.run { state, _, actions in state.webSocketClosed(carrier, failed: failed, into: &actions) }
        self.flush()
    }

    // MARK: Time

    private var deadline: Milliseconds {
        min(self.state.nextDeadline ?? .max, self.application?.engineIODeadline ?? .max)
    }

    func isDue(_ now: Milliseconds) -> Bool { self.deadline <= now }

    func tick(_ now: Milliseconds) {
        self.run { state, _, actions in state.tick(now: now, into: &actions) }
        if let application, application.engineIODeadline ?? .max <= now {
            application.engineIOTick(now: now)
            self.schedule()
        }
        self.flush()
    }

    /// Schedules a timer for a deadline before the registry's next round.
    private func schedule() {
        let next = self.deadline
        let now = systemUptime()
        guard next < now + EngineIORegistry.interval, next < self.scheduled else { return }
        // After a stall, an overdue pong may not have been read, so it waits for the round.
        guard !self.state.awaitsPong || next >= now else { return }
        self.scheduled = next
        let reference = LoopReference(self, eventLoop: self.eventLoop)
        self.eventLoop.scheduleTask(in: .milliseconds(max(0, next - now))) {
            reference.call { connection in
                connection.scheduled = .max
                connection.tick(systemUptime())
                connection.schedule()
            }
        }
    }

    // MARK: Actions

    private func run(_ step: (inout EngineIOStateMachine, Milliseconds, inout [EngineIOAction]) -> Void) {
        var actions: [EngineIOAction] = []
        step(&self.state, systemUptime(), &actions)
        self.pending += actions
        self.perform()
    }

    /// Performs actions in order; the actions that they cause come after them.
    private func perform() {
        guard !self.isPerforming else { return }
        self.isPerforming = true
        var next = 0
        while next < self.pending.count {
            let action = self.pending[next]
            next += 1
            self.perform(action)
        }
        // Frees the storage while the connection is idle.
        self.pending = []
        self.isPerforming = false
        self.settleProofs()
        self.schedule()
    }

    private func perform(_ action: EngineIOAction) {
        switch action {
        case .respond(let carrier, let response):
            guard let index = self.exchanges.firstIndex(where: { $0.carrier == carrier }) else { return }
            self.exchanges.remove(at: index).respond(response)
            if self.exchanges.isEmpty { self.exchanges = [] }
        case .sendText(let carrier, let text): self.outlet(carrier)?.enqueue(.text(text))
        case .sendBinary(let carrier, let bytes): self.outlet(carrier)?.enqueue(.binary(bytes))
        case .closeWebSocket(let carrier, let code):
            guard let index = self.outlets.firstIndex(where: { $0.carrier == carrier }) else { return }
            let outlet = self.outlets.remove(at: index)
            outlet.enqueue(.close(code))
            outlet.flush()
        case .upgraded(let carrier): self.upgraded(carrier)
        case .deliver(let message): self.application?.engineIOReceived(message)
        case .closed(let reason): self.end(reason)
        }
    }

    private func outlet(_ carrier: EngineIOCarrier) -> EngineIOOutlet? { self.outlets.first { $0.carrier == carrier } }

    /// Lets the WebSocket's pong give the proofs that polling has not given yet.
    private func upgraded(_ carrier: EngineIOCarrier) {
        self.settleProofs()
        if let last = self.proofs.last { self.outlet(carrier)?.enqueue(.proof(last)) }
        self.proofs.removeAll()
    }

    private func settleProofs() {
        if let proven = self.proofs.settle(self.state.messagesProven) { self.application?.engineIOProven(proven) }
    }

    private func end(_ reason: EngineIOCloseReason) {
        guard let application else { return }
        self.application = nil
        self.releaseAddress()
        self.server.directory.remove(self.sid)
        self.registry.remove(self)
        application.engineIOClosed(reason)
    }
}

/// The application's side of an Engine.IO connection; confined to the connection's event loop.
package protocol EngineIOApplication: AnyObject {
    /// The connection is up. Called first, and once.
    func engineIOOpened(_ connection: EngineIOConnection)
    func engineIOReceived(_ message: EngineIOMessage)
    /// A batch of input was delivered; flush what it produced.
    func engineIOReadComplete()
    /// The client has everything sent before the proof with this number was requested.
    func engineIOProven(_ sequence: UInt64)
    /// Whether to answer a WebSocket's ping, or to accept a packet without a message; the
    /// application closes clients that send too many.
    func engineIOReceivedPing() -> Bool
    /// Output exceeds the WebSocket's limit; the application closes the connection.
    func engineIOIsTooSlow()
    /// The process is about to end; the application may close gracefully.
    func engineIOShouldQuiesce()
    /// When ``engineIOTick(now:)`` is due; nil if nothing is.
    var engineIODeadline: Milliseconds? { get }
    func engineIOTick(now: Milliseconds)
    /// The connection has closed. Called last, and once.
    func engineIOClosed(_ reason: EngineIOCloseReason)
}

extension EngineIOApplication {
    package var engineIODeadline: Milliseconds? { nil }
    package func engineIOReadComplete() {}
    package func engineIOProven(_ sequence: UInt64) {}
    package func engineIOReceivedPing() -> Bool { true }
    package func engineIOShouldQuiesce() {}
    package func engineIOTick(now: Milliseconds) {}
}
