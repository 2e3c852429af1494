// Carillon · InboxConnection.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation

/// A socket to a user's inbox that reconnects and resumes until it is cancelled or fails for good.
///
/// It delivers one frame at a time and waits until the frame is processed, so it buffers nothing.
/// If that takes too long, the gateway closes the socket (4408), and the next one resumes.
actor InboxConnection {
    enum Event: Sendable {
        case frame(Frame)
        /// No socket is open, for this reason.
        case offline(String)
    }

    /// The same as the gateway's own ping interval and timeout.
    static let pingInterval = Duration.seconds(25)
    static let pingTimeout = Duration.seconds(20)
    private static let renewalLead: TimeInterval = 60
    /// The device's clock may be ahead, so a fresh token is kept for a while even if it looks
    /// expired.
    private static let renewalSpacing: TimeInterval = 30
    /// In seconds; a much longer time overflows a `Duration`.
    private static let longestPause: TimeInterval = 1_000_000_000
    private static let unauthorized = 4401
    private static let tooManyConnections = 4409

    private let gateway: Gateway
    private let timing: Timing
    private let deliver: @Sendable (Event) async -> Void
    private var version: Int?
    private var isActive: Bool
    private var socket: (any Socket)?
    /// The token that the gateway refused; nil if it accepted the last one.
    private var refused: String?
    private var failures = 0
    private var drainDelay = Duration.zero

    /// - Parameters:
    ///   - version: the inbox version to resume from; nil for the whole inbox.
    ///   - isActive: whether the user looks at the app.
    ///   - deliver: processes an event; the next frame is read after it returns.
    init(
        _ gateway: Gateway, version: Int?, isActive: Bool, timing: Timing,
        deliver: @escaping @Sendable (Event) async -> Void
    ) {
        self.gateway = gateway
        self.version = version
        self.isActive = isActive
        self.timing = timing
        self.deliver = deliver
    }

    /// Stays connected until the task is cancelled.
    ///
    /// - Throws: ``GatewayError/signedOut`` or ``GatewayError/displaced``.
    func run() async throws(GatewayError) {
        while !Task.isCancelled {
            let reason = try await self.connect()
            self.socket = nil
            guard !Task.isCancelled else { return }
            await self.deliver(.offline(reason))
            let wait = self.drainDelay + self.timing.backoff(after: self.failures)
            self.failures += 1
            self.drainDelay = .zero
            try? await self.timing.sleep(wait)
        }
    }

    /// Reports whether the user looks at the app, now and on each later connection.
    func focus(_ isActive: Bool) async {
        self.isActive = isActive
        if let socket { await Self.say(.focus(isActive: isActive), on: socket) }
    }

    // MARK: One connection

    /// Serves one connection and returns the reason why it ended.
    private func connect() async throws(GatewayError) -> String {
        let token: String
        do {
            token = try await self.gateway.tokens.token(replacing: self.refused)
        } catch .signedOut {
            throw .signedOut
        } catch {
            return error.description
        }
        self.refused = nil
        let resume = self.version.map { [URLQueryItem(name: "resume", value: String($0))] } ?? []
        let scheme = self.gateway.address.scheme == "http" ? "ws" : "wss"
        let url = self.gateway.url(["socket"], query: resume, scheme: scheme)
        let end: SocketEnd
        do {
            let socket = try await self.gateway.sockets.open(url, headers: Gateway.headers(token: token))
            self.socket = socket
            end = await withTaskCancellationHandler {
                await self.serve(socket, token)
            } onCancel: {
                socket.close()
            }
        } catch {
            end = error
        }
        switch end {
        case .refused(let status, let body):
            if status == 401 { self.refused = token }
            return Problem(GatewayAnswer(status: status, body: body)).description
        case .closed(Self.tooManyConnections, _):
            throw .displaced
        case .closed(let code, let reason):
            // The socket may have sent a newer token than that of its handshake.
            if code == Self.unauthorized { self.refused = await self.gateway.tokens.newest ?? token }
            return "the socket closed with \(code)\(reason.isEmpty ? "" : " \(reason)")"
        case .unreachable(let reason):
            return "no connection: \(reason)"
        }
    }

    private func serve(_ socket: any Socket, _ token: String) async -> SocketEnd {
        // Not child tasks, because closing must not wait for a token provider that hangs.
        let helpers = [Task { await self.keepAlive(socket) }, Task { await self.renew(token, on: socket) }]
        let end = await self.read(socket)
        for helper in helpers { helper.cancel() }
        socket.close()
        return end
    }

    private func read(_ socket: any Socket) async -> SocketEnd {
        if !self.isActive { await Self.say(.focus(isActive: false), on: socket) }
        while true {
            let frame: Frame
            do throws(SocketEnd) {
                let text = try await socket.receive()
                guard let decoded = try? JSON.decode(Frame.self, from: Data(text.utf8)) else {
                    // Resuming would bring the frame again, so begin with a long backoff.
                    self.failures = max(self.failures, 6)
                    return .closed(code: 1002, reason: "a frame is not of this protocol")
                }
                frame = decoded
            } catch {
                return error
            }
            guard !Task.isCancelled else { return .closed(code: 1006, reason: "cancelled") }
            await self.deliver(.frame(frame))
            switch frame {
            case .update(let update):
                if case .sync(_, _, true) = update.content {
                    self.version = update.version
                } else {
                    self.version = max(self.version ?? 0, update.version)
                }
                if update.isSync { self.failures = 0 }
            case .goodbye(let wait):
                self.drainDelay = wait
            case .event, .error, .other:
                break
            }
        }
    }

    /// Closes the socket when it does not answer a ping.
    ///
    /// After a phone changes its network, nothing else may show that the connection is gone.
    private func keepAlive(_ socket: any Socket) async {
        while (try? await self.timing.sleep(Self.pingInterval)) != nil {
            let isAlive = await withTaskGroup(of: Bool.self) { group in
                group.addTask { (try? await socket.ping()) != nil }
                group.addTask {
                    try? await self.timing.sleep(Self.pingTimeout)
                    return false
                }
                let isAlive = await group.next() ?? false
                if !isAlive { socket.close() }
                group.cancelAll()
                return isAlive
            }
            guard isAlive else { return }
        }
    }

    /// Sends a fresh token before the current one expires; otherwise the gateway closes the socket.
    private func renew(_ token: String, on socket: any Socket) async {
        var token = token
        var shortest: TimeInterval = 1
        while let lifetime = TokenSource.lifetime(of: token) {
            let left = lifetime.end.timeIntervalSince(self.timing.now())
            // Renew a token that lives less than twice the lead at half of its lifetime.
            let half = lifetime.length / 2
            let pause = min(Self.longestPause, max(1, left - min(Self.renewalLead, half), min(shortest, half)))
            guard (try? await self.timing.sleep(.seconds(pause))) != nil,
                let fresh = try? await self.gateway.tokens.token(replacing: token),
                TokenSource.lifetime(of: fresh).map({ $0.end > lifetime.end }) ?? true
            else { return }
            token = fresh
            shortest = Self.renewalSpacing
            await Self.say(.authenticate(token: fresh), on: socket)
        }
    }

    private static func say(_ message: ClientMessage, on socket: any Socket) async {
        guard let data = try? JSON.encode(message) else { return }
        // `read` handles the end of the socket.
        try? await socket.send(String(decoding: data, as: UTF8.self))
    }
}
