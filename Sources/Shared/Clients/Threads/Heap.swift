// Carillon · Heap.swift
// SPDX-License-Identifier: Apache-2.0

import CLinux

/// The C library's heap, which Swift allocates from.
package enum Heap {
    /// Returns free pages to the system (`malloc_trim(3)`).
    package static func trim() { malloc_trim(0) }
}
