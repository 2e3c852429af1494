// Carillon · SMTPSession.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import NIOCore
import NIOSSL

/// A mail relay's SMTP session: bytes in, actions out (RFC 5321, RFC 3207, RFC 4954).
///
/// It requires TLS and a login, CRLF line ends and the RFC's line lengths.
struct SMTPSession {
    enum Action: Equatable {
        case reply(String)
        case replyLate(String)
        /// Starts TLS after the earlier replies; unread input is discarded.
        case startTLS
        case close
        case closeLate
    }

    private static let commandLength = 512
    private static let textLength = 1_000

    private let endpoint: MailEndpoint
    private var isSecure: Bool
    private var isGreeted = false
    private var isLoggedIn = false
    private var expectsLogin = false
    private var sender: String?
    private var recipient: String?
    private var content: [UInt8]?
    private var contentFault: String?
    private var buffer: [UInt8] = []

    init(_ endpoint: MailEndpoint, isSecure: Bool) {
        self.endpoint = endpoint
        self.isSecure = isSecure
    }

    /// The relay's first reply.
    var greeting: Action {
        .reply(self.isClosed ? "554 5.3.2 No service here" : "220 sandbox.carillon.example ESMTP")
    }

    /// Whether only QUIT is allowed (RFC 5321 section 3.1).
    private var isClosed: Bool { self.endpoint.relay == .withoutService }

    mutating func receive(_ bytes: some Sequence<UInt8>) -> [Action] {
        self.buffer += bytes
        var actions: [Action] = []
        var start = self.buffer.startIndex
        while let end = self.buffer[start...].firstIndex(of: UInt8(ascii: "\n")) {
            let line = self.buffer[start..<end]
            start = end + 1
            actions += self.take(line)
            if actions.contains(.startTLS) || actions.contains(.close) {
                // Discard input sent before TLS (RFC 3207 section 4).
                self.buffer = []
                return actions
            }
        }
        self.buffer.removeFirst(start - self.buffer.startIndex)
        if self.buffer.count > Self.textLength {
            self.buffer = []
            actions += [.reply("500 5.5.2 Line too long"), .close]
        }
        return actions
    }

    private mutating func take(_ line: ArraySlice<UInt8>) -> [Action] {
        let isWellEnded = line.last == UInt8(ascii: "\r") && !line.dropLast().contains(UInt8(ascii: "\r"))
        if self.content != nil { return self.takeText(line, isWellEnded) }
        guard isWellEnded else { return [.reply("500 5.5.2 Lines must end with CRLF")] }
        guard line.count < Self.commandLength else { return [.reply("500 5.5.2 Line too long")] }
        let text = String(decoding: line.dropLast(), as: UTF8.self)
        if self.expectsLogin {
            self.expectsLogin = false
            return self.logIn(text)
        }
        return self.command(text)
    }

    // MARK: Commands

    private mutating func command(_ text: String) -> [Action] {
        let verb = text.prefix { $0 != " " }.uppercased()
        let argument = String(text.dropFirst(verb.count).drop { $0 == " " })
        if self.isClosed, verb != "QUIT" { return [.reply("503 5.5.1 No service here")] }
        switch verb {
        case "EHLO":
            guard !argument.isEmpty else { return [.reply("501 5.5.4 EHLO requires a name")] }
            self.isGreeted = true
            self.forget()
            let more =
                switch self.endpoint.relay {
                case .withoutTLS where !self.isSecure: ""
                case .strangeLogin where self.isSecure: "250-AUTH X-STRANGE\r\n"
                case .kerberosLogin where self.isSecure: "250-AUTH GSSAPI PLAIN\r\n"
                default: self.isSecure ? "250-AUTH PLAIN\r\n" : "250-STARTTLS\r\n"
                }
            return [
                .reply(
                    "250-sandbox.carillon.example\r\n250-SIZE \(MailEndpoint.sizeLimit)\r\n\(more)250 ENHANCEDSTATUSCODES"
                )
            ]
        case "QUIT": return [.reply("221 2.0.0 Bye"), .close]
        case "NOOP": return [.reply("250 2.0.0 OK")]
        case "RSET":
            self.forget()
            return [.reply("250 2.0.0 OK")]
        case "STARTTLS", "AUTH", "MAIL", "RCPT", "DATA":
            guard self.isGreeted else { return [.reply("503 5.5.1 EHLO first")] }
        default: return [.reply("500 5.5.1 Unknown command")]
        }
        switch verb {
        case "STARTTLS":
            guard !self.isSecure else { return [.reply("503 5.5.1 TLS already active")] }
            if self.endpoint.relay == .refusedTLS { return [.reply("502 5.5.1 No TLS here")] }
            if self.endpoint.relay == .busyTLS { return [.reply("454 4.7.0 TLS temporarily unavailable")] }
            self.isSecure = true
            self.isGreeted = false
            return [.reply("220 2.0.0 Ready to start TLS"), .startTLS]
        case _ where !self.isSecure: return [.reply("530 5.7.0 STARTTLS first")]
        case "AUTH": return self.authenticate(argument)
        case _ where !self.isLoggedIn: return [.reply("530 5.7.0 Authentication required")]
        case "MAIL": return self.mail(argument)
        case "RCPT": return self.rcpt(argument)
        default: return self.data()
        }
    }

    private mutating func authenticate(_ argument: String) -> [Action] {
        let words = argument.split(separator: " ")
        guard !self.isLoggedIn else { return [.reply("503 5.5.1 Already authenticated")] }
        // Refuses every Kerberos ticket.
        let mechanisms = self.endpoint.relay == .kerberosLogin ? ["PLAIN", "GSSAPI"] : ["PLAIN"]
        guard let name = words.first?.uppercased(), mechanisms.contains(name) else {
            return [.reply("504 5.5.4 Only \(mechanisms.joined(separator: " and "))")]
        }
        if words.count > 1 { return self.logIn(String(words[1])) }
        self.expectsLogin = true
        return [.reply("334 ")]
    }

    private mutating func logIn(_ text: String) -> [Action] {
        if self.endpoint.relay == .busyLogin { return [.reply("454 4.7.0 Authentication temporarily unavailable")] }
        let parts = Data(base64Encoded: text).map { Array($0).split(separator: 0, omittingEmptySubsequences: false) }
        guard let parts, parts.count == 3,
            self.endpoint.mayLogIn(
                user: String(decoding: parts[1], as: UTF8.self), password: String(decoding: parts[2], as: UTF8.self))
        else { return [.reply("535 5.7.8 Authentication credentials invalid")] }
        self.isLoggedIn = true
        return [.reply("235 2.7.0 Welcome")]
    }

    private mutating func mail(_ argument: String) -> [Action] {
        guard self.sender == nil else { return [.reply("503 5.5.1 Sender already given")] }
        guard let (address, parameters) = Self.path(argument, after: "FROM:") else {
            return [.reply("501 5.5.4 MAIL FROM:<address>")]
        }
        for parameter in parameters {
            let pair = parameter.uppercased().split(separator: "=")
            guard pair.count == 2, pair[0] == "SIZE", let size = Int(pair[1]) else {
                return [.reply("555 5.5.4 Unknown parameter")]
            }
            if size > MailEndpoint.sizeLimit { return [.reply("552 5.3.4 Too large")] }
        }
        let actions = self.actions(self.endpoint.verdict(sender: address), accepted: "250 2.1.0 OK")
        if actions == [.reply("250 2.1.0 OK")] { self.sender = address }
        return actions
    }

    private mutating func rcpt(_ argument: String) -> [Action] {
        guard self.sender != nil else { return [.reply("503 5.5.1 MAIL first")] }
        guard self.recipient == nil else { return [.reply("452 4.5.3 Too many recipients")] }
        guard let (address, parameters) = Self.path(argument, after: "TO:"), parameters.isEmpty else {
            return [.reply("501 5.5.4 RCPT TO:<address>")]
        }
        let actions = self.actions(self.endpoint.verdict(recipient: address), accepted: "250 2.1.5 OK")
        if actions == [.reply("250 2.1.5 OK")] { self.recipient = address }
        return actions
    }

    private mutating func data() -> [Action] {
        guard self.recipient != nil else { return [.reply("503 5.5.1 RCPT first")] }
        self.content = []
        self.contentFault = nil
        return [.reply("354 End data with <CR><LF>.<CR><LF>")]
    }

    /// Parses `<address>` and the parameters after it, as in MAIL and RCPT.
    private static func path(_ argument: String, after word: String) -> (address: String, parameters: [Substring])? {
        guard argument.uppercased().hasPrefix(word) else { return nil }
        let rest = argument.dropFirst(word.count)
        guard rest.first == "<", let end = rest.firstIndex(of: ">") else { return nil }
        let address = rest[..<end].dropFirst()
        guard address.count(where: { $0 == "@" }) == 1, !address.contains(" ") else { return nil }
        return (String(address), rest[rest.index(after: end)...].split(separator: " "))
    }

    // MARK: Text

    private mutating func takeText(_ line: ArraySlice<UInt8>, _ isWellEnded: Bool) -> [Action] {
        if !isWellEnded { self.contentFault = "A line ends without CRLF" }
        if line.count >= Self.textLength { self.contentFault = "A line is too long" }
        guard line.elementsEqual(".\r".utf8) else {
            let text = line.first == UInt8(ascii: ".") ? line.dropFirst() : line
            if self.content?.count ?? 0 > MailEndpoint.sizeLimit {
                self.contentFault = "Too large"
            } else {
                self.content?.append(contentsOf: text)
                self.content?.append(UInt8(ascii: "\n"))
            }
            return []
        }
        defer { self.forget() }
        guard let content = self.content, let sender, let recipient else { return [.close] }
        if let contentFault { return [.reply("554 5.6.0 \(contentFault)")] }
        let verdict = self.endpoint.verdict(sender: sender, recipient: recipient, content: content)
        return self.actions(verdict, accepted: "250 2.0.0 Ok: queued as \(UInt32.random(in: .min ... .max))")
    }

    private mutating func forget() {
        self.sender = nil
        self.recipient = nil
        self.content = nil
    }

    private func actions(_ verdict: MailVerdict, accepted: String) -> [Action] {
        switch verdict {
        case .accept: [.reply(accepted)]
        case .acceptLate: [.replyLate(accepted)]
        case .refuse(let reply): [.reply(reply)]
        case .refuseAndClose(let reply): [.reply(reply), .close]
        case .silence: []
        case .cut: [.close]
        case .cutLate: [.closeLate]
        }
    }
}

/// A client's connection to the mail relay.
final class SMTPConnectionHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let endpoint: MailEndpoint
    private let tls: NIOSSLContext
    private let slowPause: SlowPause
    private var session: SMTPSession
    private var isTaken = false

    /// - Parameter isSecure: whether the connection starts with TLS.
    init(_ endpoint: MailEndpoint, tls: NIOSSLContext, isSecure: Bool, slowPause: SlowPause) {
        self.endpoint = endpoint
        self.tls = tls
        self.slowPause = slowPause
        self.session = SMTPSession(endpoint, isSecure: isSecure)
    }

    func channelActive(context: ChannelHandlerContext) {
        self.isTaken = self.endpoint.open()
        if self.isTaken {
            self.perform(self.session.greeting, context)
        } else {
            self.perform(.reply("421 4.3.2 Too many connections"), context)
            self.perform(.close, context)
        }
        context.flush()
        context.fireChannelActive()
    }

    func channelInactive(context: ChannelHandlerContext) {
        if self.isTaken { self.endpoint.close() }
        context.fireChannelInactive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let buffer = self.unwrapInboundIn(data)
        for action in self.session.receive(buffer.readableBytesView) { self.perform(action, context) }
        context.flush()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        context.close(promise: nil)
    }

    private func perform(_ action: SMTPSession.Action, _ context: ChannelHandlerContext) {
        switch action {
        case .reply(let text): self.write(text, context)
        case .replyLate(let text):
            self.slowPause.end(on: context.eventLoop).assumeIsolated().whenSuccess {
                self.write(text, context)
                context.flush()
            }
        case .closeLate:
            self.slowPause.end(on: context.eventLoop).assumeIsolated().whenSuccess { context.close(promise: nil) }
        case .startTLS:
            // The reply to STARTTLS must leave in plain text first.
            context.flush()
            do {
                try context.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: self.tls), position: .first)
            } catch {
                context.close(promise: nil)
            }
        case .close:
            context.flush()
            context.close(promise: nil)
        }
    }

    private func write(_ text: String, _ context: ChannelHandlerContext) {
        context.write(self.wrapOutboundOut(ByteBuffer(string: text + "\r\n")), promise: nil)
    }
}
