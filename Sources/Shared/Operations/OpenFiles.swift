// Carillon · OpenFiles.swift
// SPDX-License-Identifier: Apache-2.0

import Glibc

/// The number of files that the process may have open (getrlimit(2), RLIMIT_NOFILE); each
/// connection is one.
package enum OpenFiles {
    /// Raises the limit as far as an unprivileged process may.
    ///
    /// - Returns: the limit from now on; nil if there is none.
    @discardableResult
    package static func raiseLimit() -> Int? {
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0 else { return nil }
        var raised = limit
        raised.rlim_cur = limit.rlim_max
        if setrlimit(resource, &raised) == 0 { limit = raised }
        return Int(exactly: limit.rlim_cur)
    }
}
