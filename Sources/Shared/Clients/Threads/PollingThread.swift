// Carillon · PollingThread.swift
// SPDX-License-Identifier: Apache-2.0

import CLinux
import Glibc
import Synchronization

/// A thread that waits in epoll and runs work from its inbox.
///
/// Serves libraries whose sockets NIO cannot watch, so that they never block the cooperative pool.
final class PollingThread: Sendable {
    /// The object that the thread serves; its methods run only on the thread.
    protocol Owner: AnyObject, Sendable {
        /// Reports that a watched socket can be read or written.
        func socketIsReady(_ socket: CInt)
        /// Runs after events and work, and at least every second.
        ///
        /// - Returns: whether something has a deadline; then it runs again within 50 milliseconds.
        func tick() -> Bool
    }

    typealias Work = @Sendable () -> Void

    private struct Inbox {
        var work: [Work] = []
        var isAwake = false
        var isStopped = false
    }

    private let inbox = Mutex(Inbox())
    private let epoll: CInt
    private let bell: Doorbell

    /// Returns nil if the system has no descriptors left.
    init?() {
        guard let bell = Doorbell() else { return nil }
        self.bell = bell
        self.epoll = epoll_create1(CInt(EPOLL_CLOEXEC))
        guard self.epoll >= 0 else { return nil }
        self.watch(bell.descriptor)
    }

    deinit {
        Glibc.close(self.epoll)
    }

    /// Starts the loop, which retains itself and `owner` until ``stop()``; false if the system has
    /// no thread left.
    func start(name: String, owner: any Owner) -> Bool {
        DetachedThread.run(name: name) { self.loop(owner) }
    }

    /// Runs `work` on the thread soon; false if the thread was stopped.
    @discardableResult
    func run(_ work: @escaping Work) -> Bool {
        let mustWake = self.inbox.withLock { inbox -> Bool? in
            if inbox.isStopped { return nil }
            inbox.work.append(work)
            defer { inbox.isAwake = true }
            return !inbox.isAwake
        }
        guard let mustWake else { return false }
        if mustWake { self.bell.ring() }
        return true
    }

    /// Ends the loop after the work in the inbox.
    func stop() {
        self.inbox.withLock { $0.isStopped = true }
        self.bell.ring()
    }

    // MARK: On the thread

    /// Watches a socket for reading.
    func watch(_ socket: CInt) {
        self.control(EPOLL_CTL_ADD, socket, forWriting: false)
    }

    /// Changes whether a watched socket is watched for writing.
    func rewatch(_ socket: CInt, forWriting: Bool) {
        self.control(EPOLL_CTL_MOD, socket, forWriting: forWriting)
    }

    /// Stops watching a socket; call this before closing it.
    func unwatch(_ socket: CInt) {
        self.control(EPOLL_CTL_DEL, socket, forWriting: false)
    }

    private func control(_ operation: CInt, _ socket: CInt, forWriting: Bool) {
        var event = epoll_event()
        event.events = EPOLLIN.rawValue | (forWriting ? EPOLLOUT.rawValue : 0)
        event.data.fd = socket
        epoll_ctl(self.epoll, operation, socket, &event)
    }

    private func loop(_ owner: any Owner) {
        var events = [epoll_event](repeating: epoll_event(), count: 64)
        var hasDeadline = true
        while true {
            let count = epoll_wait(self.epoll, &events, CInt(events.count), hasDeadline ? 50 : 1_000)
            for index in 0..<max(0, Int(count)) {
                let socket = events[index].data.fd
                if socket == self.bell.descriptor {
                    self.bell.clear()
                } else {
                    owner.socketIsReady(socket)
                }
            }
            let (work, isOver) = self.inbox.withLock { inbox in
                defer {
                    inbox.work = []
                    inbox.isAwake = false
                }
                return (inbox.work, inbox.isStopped && inbox.work.isEmpty)
            }
            if isOver { return }
            for item in work { item() }
            hasDeadline = owner.tick()
        }
    }
}
