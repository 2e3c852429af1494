// Carillon · DoorDecoder.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1

/// Decodes requests with NIO's decoder, and can go on after a request for another protocol.
///
/// NIO's decoder stops after a request with `Upgrade`, since the bytes that follow may belong to
/// the other protocol. A server may ignore the field (RFC 9110, section 7.8), and some clients,
/// such as Java's, send it with every request.
final class DoorDecoder: ByteToMessageDecoder {
    typealias InboundOut = HTTPServerRequestPart

    private let limits: NIOHTTPDecoderLimitConfiguration
    private var decoder: HTTPRequestDecoder
    private var isResumed = false

    init(limits: NIOHTTPDecoderLimitConfiguration) {
        self.limits = limits
        self.decoder = Self.makeDecoder(limits)
    }

    private static func makeDecoder(_ limits: NIOHTTPDecoderLimitConfiguration) -> HTTPRequestDecoder {
        HTTPRequestDecoder(leftOverBytesStrategy: .forwardBytes, limitConfiguration: limits)
    }

    /// Takes the bytes after the current request for requests.
    ///
    /// Call it while the handler receives the end of a request for which
    /// ``HTTPRequestHead/stopsDecoder`` is true.
    func resume() { self.isResumed = true }

    func decoderAdded(context: ChannelHandlerContext) { self.decoder.decoderAdded(context: context) }

    func decoderRemoved(context: ChannelHandlerContext) { self.decoder.decoderRemoved(context: context) }

    func decode(context: ChannelHandlerContext, buffer: inout ByteBuffer) throws -> DecodingState {
        let state = try self.decoder.decode(context: context, buffer: &buffer)
        guard self.isResumed else { return state }
        self.isResumed = false
        // NIO's decoder has read the request to its end and nothing beyond it.
        self.decoder.decoderRemoved(context: context)
        self.decoder = Self.makeDecoder(self.limits)
        self.decoder.decoderAdded(context: context)
        return .continue
    }

    func decodeLast(
        context: ChannelHandlerContext,
        buffer: inout ByteBuffer,
        seenEOF: Bool
    ) throws -> DecodingState {
        try self.decoder.decodeLast(context: context, buffer: &buffer, seenEOF: seenEOF)
    }
}

extension HTTPRequestHead {
    /// Whether NIO's decoder stops after the request.
    ///
    /// Decides by the same bytes as llhttp. A decoder that had not stopped would have read a part
    /// of the next request, which ``DoorDecoder/resume()`` would lose.
    var stopsDecoder: Bool {
        if self.method == .CONNECT { return true }
        guard self.headers["upgrade"].contains(where: { !$0.isEmpty }) else { return false }
        return ["connection", "proxy-connection"].contains { name in
            self.headers[name].contains { Self.namesUpgrade($0) }
        }
    }

    /// Whether one of the options in a `Connection` field is `upgrade`.
    ///
    /// Spaces may surround it. A tab may precede it; one that follows hides it from llhttp.
    private static func namesUpgrade(_ field: String) -> Bool {
        let name = "upgrade".utf8
        return field.utf8.split(separator: UInt8(ascii: ",")).contains { option in
            let option = option.drop { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }
            return option.prefix(name.count).elementsEqual(name) { $0 | 0x20 == $1 }
                && option.dropFirst(name.count).allSatisfy { $0 == UInt8(ascii: " ") }
        }
    }
}
