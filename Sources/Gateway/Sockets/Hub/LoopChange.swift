// Carillon · LoopChange.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore

/// A change on its way to the sockets of one event loop: each dialect's bytes are made once, by the first socket that
/// needs them.
final class LoopChange {
    let change: NodeChange
    private var frames: [(dialect: Dialect, frame: ByteBuffer)] = []

    private var bundle: SignalRBundle?

    init(_ change: NodeChange) {
        self.change = change
    }

    /// The dialect's bytes.
    func frame(_ dialect: Dialect, _ make: (NodeChange) -> ByteBuffer) -> ByteBuffer {
        for existing in self.frames where existing.dialect == dialect { return existing.frame }
        let frame = make(self.change)
        self.frames.append((dialect, frame))
        return frame
    }

    /// What SignalR clients are told.
    func bundle(_ make: (NodeChange) -> SignalRBundle) -> SignalRBundle {
        if let bundle { return bundle }
        let bundle = make(self.change)
        self.bundle = bundle
        return bundle
    }
}
