// Carillon · StoreSession.swift
// SPDX-License-Identifier: Apache-2.0

/// Server settings under which the stores' statements run.
package enum StoreSession {
    /// Every statement here goes by an index, for a batch of known size.
    ///
    /// The planner must not take a full scan because its statistics are of a time when the tables were empty, nor plan
    /// sixteen parts anew at each call.
    package static let settings: [(name: String, value: String)] = [
        ("jit", "off"),
        ("plan_cache_mode", "force_generic_plan"),
        ("enable_seqscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
    ]

    /// For connections that read users page by page: each page goes on in the index where the last one ended, whatever
    /// the statistics make the planner expect, rather than reading and sorting all that are left.
    package static let pageSettings: [(name: String, value: String)] =
        Self.settings + [("enable_bitmapscan", "off"), ("enable_sort", "off")]
}
