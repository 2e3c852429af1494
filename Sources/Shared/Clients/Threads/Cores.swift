// Carillon · Cores.swift
// SPDX-License-Identifier: Apache-2.0

import CLinux
import Glibc
import NIOCore

/// The processor cores of this process.
package enum Cores {
    /// How many the process may use: those of its control group or of its CPU affinity, whichever
    /// are fewer.
    ///
    /// Source: sched_getaffinity(2).
    package static var count: Int {
        var allowed = cpu_set_t()
        // Fails on machines with more cores than the set has bits.
        guard sched_getaffinity(0, MemoryLayout<cpu_set_t>.size, &allowed) == 0 else { return System.coreCount }
        let affinity = withUnsafeBytes(of: &allowed) { $0.reduce(0) { $0 + $1.nonzeroBitCount } }
        return max(1, min(System.coreCount, affinity))
    }
}
