// Carillon · CoreGate.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Glibc
import Synchronization

/// Holds a process to a share of a core: stops it whenever it has used more, as long as it takes.
///
/// It needs no control groups. Only the main thread counts, in which Redis does its work.
final class CoreGate: Sendable {
    /// The most processor time that an idle process may save up, in seconds.
    private static let burst = 0.005
    /// The time between two looks, in microseconds.
    private static let interval: UInt32 = 1_000

    private let pid: pid_t
    private let share: Double
    private let isOpen = Atomic(false)

    /// - Parameter share: of one core, above 0.
    init(_ pid: Int, share: Double) {
        self.pid = pid_t(pid)
        self.share = share
        Thread { self.hold() }.start()
    }

    /// Lets the process go on without a limit.
    func open() { self.isOpen.store(true, ordering: .relaxed) }

    private func hold() {
        var budget = 0.0
        var last = (time: Self.now(), used: self.used())
        var isStopped = false
        while !self.isOpen.load(ordering: .relaxed) {
            usleep(Self.interval)
            let next = (time: Self.now(), used: self.used())
            budget = min(Self.burst, budget + (next.time - last.time) * self.share - (next.used - last.used))
            last = next
            if (budget < 0) != isStopped {
                isStopped.toggle()
                _ = kill(self.pid, isStopped ? SIGSTOP : SIGCONT)
            }
        }
        _ = kill(self.pid, SIGCONT)
    }

    /// Seconds of the monotonic clock.
    private static func now() -> Double { Double(DispatchTime.now().uptimeNanoseconds) / 1e9 }

    /// Seconds of processor time (proc(5), `schedstat`).
    private func used() -> Double {
        let text = (try? String(contentsOfFile: "/proc/\(self.pid)/schedstat", encoding: .utf8)) ?? ""
        return Double(text.prefix { $0 != " " }).map { $0 / 1e9 } ?? 0
    }
}
