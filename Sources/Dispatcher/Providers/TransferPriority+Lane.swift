// Carillon · TransferPriority+Lane.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

extension TransferPriority {
    /// What is critical waits behind nothing else.
    init(_ lane: Lane) {
        self =
            switch lane {
            case .critical: .high
            case .normal: .normal
            case .bulk: .low
            }
    }
}
