// Carillon · OutputSlices.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// Flushes large output in slices of one TLS record; added behind the TLS handler.
///
/// The TLS handler gathers the ciphertext of a flush in one buffer, which keeps its largest
/// capacity for as long as the connection lasts.
package final class OutputSlices: ChannelOutboundHandler {
    package typealias OutboundIn = ByteBuffer
    package typealias OutboundOut = ByteBuffer

    /// Fits, encrypted, into the 16 KB with which the TLS handler's buffer begins, if it is written
    /// at once.
    static let length = 16_000

    private enum Step {
        case write(ByteBuffer, EventLoopPromise<Void>?)
        case flush
        case close(CloseMode, EventLoopPromise<Void>?)
    }

    /// Bytes written since the last flush.
    private var gathered = 0
    private var isBusy = false
    /// Steps that a handler takes while a slice is flushed; they follow the flush of the last one.
    private var later: [Step] = []

    package init() {}

    package func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        self.submit(.write(self.unwrapOutboundIn(data), promise), context)
    }

    package func flush(context: ChannelHandlerContext) { self.submit(.flush, context) }

    package func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        self.submit(.close(mode, promise), context)
    }

    private func submit(_ step: Step, _ context: ChannelHandlerContext) {
        guard !self.isBusy else { return self.later.append(step) }
        self.isBusy = true
        self.perform(step, context)
        switch step {
        case .write: break
        case .flush, .close: while !self.later.isEmpty { self.perform(self.later.removeFirst(), context) }
        }
        self.isBusy = false
    }

    private func perform(_ step: Step, _ context: ChannelHandlerContext) {
        switch step {
        case .write(let bytes, let promise): self.write(bytes, promise, context)
        case .flush:
            self.gathered = 0
            context.flush()
        case .close(let mode, let promise): context.close(mode: mode, promise: promise)
        }
    }

    /// Writes all slices but the last with a flush each; the last waits for the caller's.
    private func write(_ bytes: ByteBuffer, _ promise: EventLoopPromise<Void>?, _ context: ChannelHandlerContext) {
        var rest = bytes
        while self.gathered + rest.readableBytes > Self.length {
            if let slice = rest.readSlice(length: Self.length - self.gathered), slice.readableBytes > 0 {
                context.write(self.wrapOutboundOut(slice), promise: nil)
            }
            self.gathered = 0
            context.flush()
        }
        self.gathered += rest.readableBytes
        context.write(self.wrapOutboundOut(rest), promise: promise)
    }
}
