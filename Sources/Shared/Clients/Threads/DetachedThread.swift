// Carillon · DetachedThread.swift
// SPDX-License-Identifier: Apache-2.0

import CLinux
import Glibc

/// Runs work that may block on a POSIX thread of its own, so that it never holds one of the cooperative pool.
///
/// SIGPIPE is blocked there: a connection that a peer cuts must not end the process, whatever the library on the thread does.
package enum DetachedThread {
    private final class Work {
        let body: @Sendable () -> Void

        init(_ body: @escaping @Sendable () -> Void) {
            self.body = body
        }
    }

    /// Starts `body` on a thread that nobody joins; false if the system has none to give.
    ///
    /// - Parameter name: as tools show it, of which Linux keeps 15 bytes.
    package static func run(name: String, _ body: @escaping @Sendable () -> Void) -> Bool {
        let named: @Sendable () -> Void = {
            pthread_setname_np(pthread_self(), String(decoding: name.utf8.prefix(15), as: UTF8.self))
            Self.blockBrokenPipeSignal()
            body()
        }
        // Retained here, released by the thread, or below if there is none.
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
