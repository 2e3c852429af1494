// Carillon · Boxed.swift
// SPDX-License-Identifier: Apache-2.0

/// A large value on the heap: a copy is one reference, and a change copies the value first if
/// others refer to it.
struct Boxed<Value: Sendable>: Sendable {
    /// Sound without checks by the compiler: a storage with several owners never changes.
    private final class Storage: @unchecked Sendable {
        var value: Value

        init(_ value: Value) {
            self.value = value
        }
    }

    private var storage: Storage

    init(_ value: Value) {
        self.storage = Storage(value)
    }

    var value: Value {
        _read { yield self.storage.value }
        _modify {
            if !isKnownUniquelyReferenced(&self.storage) { self.storage = Storage(self.storage.value) }
            yield &self.storage.value
        }
    }
}
