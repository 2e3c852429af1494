// Carillon · Duration+Milliseconds.swift
// SPDX-License-Identifier: Apache-2.0

extension Duration {
    /// Whole milliseconds, as libcurl counts; centuries are cut off at what an `Int32` holds.
    var milliseconds: Int {
        let (seconds, attoseconds) = self.components
        guard seconds < Int64(Int32.max / 1_000) else { return Int(Int32.max) }
        return Int(seconds) * 1_000 + Int(attoseconds / 1_000_000_000_000_000)
    }
}
