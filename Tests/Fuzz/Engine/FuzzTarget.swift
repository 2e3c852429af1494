// Carillon · FuzzTarget.swift
// SPDX-License-Identifier: Apache-2.0

/// Something that reads bytes from outside.
protocol FuzzTarget {
    /// Texts that mean something to it.
    var dictionary: [String] { get }

    /// Reads an input from the start, and checks what must hold.
    func run(_ input: [UInt8]) async -> FuzzOutcome
}

/// What became of an input.
struct FuzzOutcome {
    /// Inputs with a new one are kept, to be mutated further.
    var kind: String
    /// What should hold and does not.
    var fault: String?

    init(_ kind: String, fault: String? = nil) {
        self.kind = kind
        self.fault = fault
    }
}
