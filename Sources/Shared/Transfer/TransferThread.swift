// Carillon · TransferThread.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc

/// A POSIX thread of our own: libcurl may block in it, the cooperative pool must not.
enum TransferThread {
    private final class Work {
        let body: @Sendable () -> Void

        init(_ body: @escaping @Sendable () -> Void) {
            self.body = body
        }
    }

    /// Starts `body` on a thread that nobody joins; false if the system has none to give.
    static func start(_ body: @escaping @Sendable () -> Void) -> Bool {
        // Retained here, released by the thread, or below if there is none.
        let context = Unmanaged.passRetained(Work(body)).toOpaque()
        var thread = pthread_t()
        let status = pthread_create(
            &thread,
            nil,
            { context in
                guard let context else { return nil }
                TransferThread.blockBrokenPipeSignal()
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

    /// With `CURLOPT_NOSIGNAL` libcurl leaves SIGPIPE alone, and a connection cut by the peer would end the process.
    private static func blockBrokenPipeSignal() {
        var signals = sigset_t()
        sigemptyset(&signals)
        sigaddset(&signals, SIGPIPE)
        pthread_sigmask(SIG_BLOCK, &signals, nil)
    }
}
