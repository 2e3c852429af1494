// Carillon · Doorbell.swift
// SPDX-License-Identifier: Apache-2.0

import CLinux
import Glibc

/// Wakes one thread that waits; a ring that nobody waits for is remembered.
package final class Doorbell: Sendable {
    private let descriptor: CInt

    /// Nil if the system has no descriptor to give.
    package init?() {
        self.descriptor = eventfd(0, CInt(EFD_CLOEXEC | EFD_NONBLOCK))
        guard self.descriptor >= 0 else { return nil }
    }

    deinit {
        Glibc.close(self.descriptor)
    }

    /// Rings, from any thread.
    package func ring() {
        var one: UInt64 = 1
        _ = write(self.descriptor, &one, MemoryLayout<UInt64>.size)
    }

    /// Blocks the calling thread until it rings, or that long; whether it rang.
    package func wait(milliseconds: Int) -> Bool {
        var wanted = pollfd(fd: self.descriptor, events: Int16(POLLIN), revents: 0)
        // A signal may end the wait early, which the caller takes for its time.
        guard poll(&wanted, 1, CInt(clamping: milliseconds)) > 0 else { return false }
        var value: UInt64 = 0
        _ = read(self.descriptor, &value, MemoryLayout<UInt64>.size)
        return true
    }
}
