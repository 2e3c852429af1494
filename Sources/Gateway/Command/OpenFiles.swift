// Carillon · OpenFiles.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc

/// How many files the process may have open (getrlimit(2), RLIMIT_NOFILE), each connection being one.
enum OpenFiles {
    /// Kept for what is no client's connection: stores, keys, certificates, logs.
    private static let reserve = 256

    /// Raises the limit as far as the system lets it be raised without asking anybody.
    ///
    /// - Returns: the limit that holds from now on; nil if there is none.
    static func raiseLimit() -> Int? {
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0 else { return nil }
        var raised = limit
        raised.rlim_cur = limit.rlim_max
        if setrlimit(resource, &raised) == 0 { limit = raised }
        return Int(exactly: limit.rlim_cur)
    }

    /// How many connections of clients there may be under a limit, so that the rest of the gateway goes on.
    static func connections(under limit: Int) -> Int {
        max(1, limit - min(self.reserve, limit / 4))
    }
}
