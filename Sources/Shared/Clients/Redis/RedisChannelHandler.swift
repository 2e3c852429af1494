// Carillon · RedisChannelHandler.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// What a channel tells its owner, always on the channel's event loop.
enum RedisChannelEvent: Sendable {
    case bytes(ByteBuffer)
    case failed(String)
    case closed
}

/// Hands a channel's bytes and its end to its owner, which lives on the same event loop.
final class RedisChannelHandler: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer

    private let receive: @Sendable (RedisChannelEvent) -> Void

    init(receive: @escaping @Sendable (RedisChannelEvent) -> Void) {
        self.receive = receive
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        self.receive(.bytes(self.unwrapInboundIn(data)))
    }

    func channelInactive(context: ChannelHandlerContext) {
        self.receive(.closed)
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        self.receive(.failed(NetworkFault.words(error)))
        context.close(promise: nil)
    }
}
