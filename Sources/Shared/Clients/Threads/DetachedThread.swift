// Carillon · DetachedThread.swift
// SPDX-License-Identifier: Apache-2.0

import CLinux
import Glibc

/// Runs blocking work on its own POSIX thread, so that it never blocks the cooperative pool.
///
/// SIGPIPE is blocked on that thread: a broken connection must not end the process, whatever the
/// library on the thread does.
enum DetachedThread {
    /// Starts a named thread as ``run(name:_:)`` does; tests inject one that fails.
    typealias Start = @Sendable (_ name: String, _ body: @escaping @Sendable () -> Void) -> Bool

    private final class Work {
        let body: @Sendable () -> Void

        init(_ body: @escaping @Sendable () -> Void) {
            self.body = body
        }
    }

    /// Starts `body` on a detached thread; false if the system has no thread left.
    ///
    /// - Parameter name: the thread's name; Linux keeps 15 bytes.
    static func run(name: String, _ body: @escaping @Sendable () -> Void) -> Bool {
        let named: @Sendable () -> Void = {
            pthread_setname_np(pthread_self(), String(decoding: name.utf8.prefix(15), as: UTF8.self))
            Self.blockBrokenPipeSignal()
            body()
        }
        // Retained here and released by the new thread, or below if none starts.
        let context = Unmanaged.passRetained(Work(named)).toOpaque()
        var thread = pthread_t()
        let status = pthread_create(
            &thread,
            nil,
            { context in
                guard let context else { return nil }
                Unmanaged<Work>.fromOpaque(context).takeRetainedValue().body()
                return nil
            },
            context
        )
        guard status == 0 else {
            Unmanaged<Work>.fromOpaque(context).release()
            return false
        }
        pthread_detach(thread)
        return true
    }

    private static func blockBrokenPipeSignal() {
        var signals = sigset_t()
        sigemptyset(&signals)
        sigaddset(&signals, SIGPIPE)
        pthread_sigmask(SIG_BLOCK, &signals, nil)
    }
}

/// Wakes one waiting thread; a ring without a waiter is remembered.
final class Doorbell: Sendable {
    /// The eventfd, readable from a ring until ``clear()``.
    let descriptor: CInt

    /// Returns nil if the system has no descriptor left.
    init?() {
        self.descriptor = eventfd(0, CInt(EFD_CLOEXEC | EFD_NONBLOCK))
        guard self.descriptor >= 0 else { return nil }
    }

    deinit {
        Glibc.close(self.descriptor)
    }

    /// Rings from any thread.
    func ring() {
        var one: UInt64 = 1
        _ = write(self.descriptor, &one, MemoryLayout<UInt64>.size)
    }

    /// Blocks the calling thread until a ring or the timeout; returns whether it rang.
    func wait(milliseconds: Int) -> Bool {
        var wanted = pollfd(fd: self.descriptor, events: Int16(POLLIN), revents: 0)
        // A signal may end the wait early, which counts as a timeout.
        guard poll(&wanted, 1, CInt(clamping: milliseconds)) > 0 else { return false }
        self.clear()
        return true
    }

    /// Forgets the rings so far.
    func clear() {
        var value: UInt64 = 0
        _ = read(self.descriptor, &value, MemoryLayout<UInt64>.size)
    }
}

/// The C library's heap, which Swift allocates from.
package enum Heap {
    /// Returns free pages to the system (`malloc_trim(3)`).
    package static func trim() { malloc_trim(0) }
}
