// Carillon · LoopChange.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import NIOCore

extension NodeFrame {
    /// Whether the frame has the body that the dialect needs.
    ///
    /// A missing body can be read from the inbox: it was stored before the connection that needs it
    /// was registered.
    func isComplete(for dialect: Dialect) -> Bool {
        self.kind != .notification || dialect.shape == .canonical || !self.camelCaseBody.isEmpty
    }

    var isNotification: Bool { self.kind == .notification }
}

/// A change of the inbox or an event, for the sockets of one event loop.
///
/// The first socket that needs a dialect's bytes encodes them; the others share them.
final class LoopChange {
    let frame: NodeFrame
    /// Joins the encoded change with earlier output, once for all sockets; nil for one socket.
    let joins: FrameJoins?
    private var encodings: [(dialect: Dialect, bytes: ByteBuffer)] = []
    private var bundle: SignalRBundle?

    init(_ frame: NodeFrame, joins: FrameJoins? = nil) {
        self.frame = frame
        self.joins = joins
    }

    /// Returns the dialect's bytes; keeps them only if several sockets need them.
    func encoded(for dialect: Dialect, _ encode: (NodeFrame) -> ByteBuffer) -> ByteBuffer {
        guard self.joins != nil else { return encode(self.frame) }
        for encoding in self.encodings where encoding.dialect == dialect { return encoding.bytes }
        let bytes = encode(self.frame)
        self.encodings.append((dialect, bytes))
        return bytes
    }

    /// Returns the records for SignalR clients.
    func bundle(_ encode: (NodeFrame) -> SignalRBundle) -> SignalRBundle {
        if let bundle { return bundle }
        let bundle = encode(self.frame)
        self.bundle = bundle
        return bundle
    }
}

/// Joins frames that many sockets of an event loop write together, once for all of them.
///
/// When five frames wait for ten thousand sockets, each frame is copied once, not ten thousand
/// times, and each socket writes one buffer. Confined to its event loop.
final class FrameJoins {
    /// The last join.
    ///
    /// It keeps its parts, so that no other buffer can take their addresses.
    private var last: (left: ByteBuffer, right: ByteBuffer, joined: ByteBuffer)?

    /// Returns `left` followed by `right`; the last joined buffer if both parts are the same again.
    func join(_ left: ByteBuffer, _ right: ByteBuffer) -> ByteBuffer {
        if let last, Self.areSame(last.left, left), Self.areSame(last.right, right) { return last.joined }
        var joined = ByteBufferAllocator().buffer(capacity: left.readableBytes + right.readableBytes)
        joined.writeImmutableBuffer(left)
        joined.writeImmutableBuffer(right)
        self.last = (left, right, joined)
        return joined
    }

    /// Frees the last join.
    func forget() { self.last = nil }

    /// Whether two buffers show the same memory, which does not change while both exist.
    private static func areSame(_ one: ByteBuffer, _ other: ByteBuffer) -> Bool {
        one.withUnsafeReadableBytes { bytes in
            // Only compares addresses, so no pointer outlives its buffer.
            other.withUnsafeReadableBytes { $0.baseAddress == bytes.baseAddress && $0.count == bytes.count }
        }
    }
}
