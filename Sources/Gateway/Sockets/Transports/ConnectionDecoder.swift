// Carillon · ConnectionDecoder.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import NIOHTTP1
import Protocols

/// Decodes requests with NIO's decoder, and can go on after a request for another protocol.
///
/// NIO's decoder stops after a request with `Upgrade`, since the bytes that follow may belong to
/// the other protocol. A server may ignore the field (RFC 9110, section 7.8), and some clients,
/// such as Java's, send it with every request.
final class ConnectionDecoder: ByteToMessageDecoder {
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

    /// Decodes the bytes after the current request as HTTP.
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

/// The handlers of a connection that read requests and write answers as HTTP.
struct ConnectionCodec {
    let encoder = HTTPResponseEncoder()
    let decoder: ConnectionDecoder
    let decoding: ByteToMessageHandler<ConnectionDecoder>

    init(_ limits: NIOHTTPDecoderLimitConfiguration) {
        self.decoder = ConnectionDecoder(limits: limits)
        // More than any head: bytes wait here behind a request that opens a WebSocket, in an
        // unfinished field, or in the white space before a value.
        self.decoding = ByteToMessageHandler(self.decoder, maximumBufferSize: 2 * limits.maxHeaderListSize)
    }
}

extension HTTPRequestHead {
    /// Whether NIO's decoder stops after the request.
    ///
    /// Decides by the same bytes as llhttp. A decoder that had not stopped would have read a part
    /// of the next request, which ``ConnectionDecoder/resume()`` would lose.
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

/// Checks of a head.
extension HTTPRequestHead {
    /// The fault for which the request is refused; nil if it is valid.
    var fault: String? { self.headers.markFault ?? self.hostFault ?? self.boundaryFault }

    /// The fault of a request whose end is uncertain; nil if it is certain.
    private var boundaryFault: String? {
        if self.method == .CONNECT { return "CONNECT is not supported" }
        // With `Upgrade`, NIO's decoder treats a body in another coding as no body.
        let codings = self.headers["transfer-encoding"]
        guard !codings.isEmpty, self.stopsDecoder, codings.map({ $0.lowercased() }) != ["chunked"] else { return nil }
        return "a request with Upgrade must have chunked as its only transfer coding"
    }

    /// Whether the client may wait for `100 Continue` before it sends the body.
    var awaitsContinue: Bool {
        guard (self.version.major, self.version.minor) >= (1, 1) else { return false }
        return self.headers["expect"].contains { $0.utf8.elementsEqual("100-continue".utf8) { $0 | 0x20 == $1 } }
    }

    /// The fault of the `Host` field (RFC 9112, section 3.2); nil if it is valid.
    private var hostFault: String? {
        let hosts = self.headers["host"]
        if hosts.count > 1 { return "the Host header must appear exactly once" }
        guard let host = hosts.first else {
            return (self.version.major, self.version.minor) < (1, 1) ? nil : "the Host header is missing"
        }
        return host.utf8.allSatisfy(Self.isOfHost) ? nil : "the Host header must be a host and its port"
    }

    private static func isOfHost(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: "-._~%!$&'()*+;=:[]".utf8.contains(byte)
        }
    }
}
