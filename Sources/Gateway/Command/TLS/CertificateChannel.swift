// Carillon · CertificateChannel.swift
// SPDX-License-Identifier: Apache-2.0

import HummingbirdCore
import Logging
import NIOCore
import NIOSSL
import Sockets

/// A server channel behind TLS, each connection with the certificate of its moment.
struct CertificateChannel: HTTPChannelHandler {
    let door: DoorChannel
    let certificate: ServerCertificate

    var responder: HTTPChannelHandler.Responder { self.door.responder }

    func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<DoorChannel.Value> {
        do {
            try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: self.certificate.context))
        } catch {
            return channel.eventLoop.makeFailedFuture(error)
        }
        return self.door.setup(channel: channel, logger: logger)
    }

    func handle(value: DoorChannel.Value, logger: Logger) async {
        await self.door.handle(value: value, logger: logger)
    }
}
