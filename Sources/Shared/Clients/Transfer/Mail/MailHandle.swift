// Carillon · MailHandle.swift
// SPDX-License-Identifier: Apache-2.0

import CCurl

/// A connection to a relay: a libcurl handle and the memory it refers to, reused for one message
/// after the other.
///
/// Blocks its thread: libcurl waits for the answer to a message's end in all of its interfaces, so
/// connections on one thread would wait for each other.
final class MailHandle {
    /// The limit on the kept part of a reply.
    static let maximumReplyBytes = 1_024
    /// The logins that take a password: libcurl's own choice without GSSAPI.
    ///
    /// libcurl prefers GSSAPI if the relay announces it and the user has a domain. Without a
    /// Kerberos ticket it then fails, and tries no other login. It picks the strongest of these.
    private static let logins =
        "AUTH=SCRAM-SHA-256;AUTH=SCRAM-SHA-1;AUTH=DIGEST-MD5;AUTH=CRAM-MD5;"
        + "AUTH=NTLM;AUTH=LOGIN;AUTH=PLAIN"

    let pointer: UnsafeMutableRawPointer
    private let errorText = UnsafeMutablePointer<CChar>.allocate(capacity: Int(CURL_ERROR_SIZE))
    private var recipients: UnsafeMutablePointer<curl_slist>?

    // State of libcurl's callbacks, used only on the handle's thread, within `send`.
    private(set) var content: [UInt8] = []
    private var position = 0
    /// Whether libcurl has read the whole message, so that its end may have left.
    private var isContentTaken = false
    private var reply: [UInt8] = []
    /// The reply before: after a refusal libcurl sends QUIT, whose answer comes last.
    private var earlierReply: [UInt8] = []
    private var isReplyComplete = true
    private var shouldContinue: () -> Bool = { true }
    private var mayStart: (@Sendable () -> Bool)?
    /// Whether the relay was ready for a message that may no longer be sent.
    private var isFenced = false

    /// Returns nil if memory runs out or libcurl rejects an option.
    init?(_ relay: MailRelay, _ configuration: MailConfiguration) {
        guard MultiHandle.isLibraryReady, let pointer = curl_easy_init() else { return nil }
        self.pointer = pointer
        guard self.configure(relay, configuration) else { return nil }
    }

    deinit {
        // Also sends QUIT if the connection is intact.
        curl_easy_cleanup(self.pointer)
        curl_slist_free_all(self.recipients)
        self.errorText.deallocate()
    }

    /// Sends one message; blocks until the relay answers or time runs out.
    ///
    /// - Parameter shouldContinue: called about once a second; false ends the transfer.
    func send(_ request: MailRequest, remaining: Duration, shouldContinue: @escaping () -> Bool) -> MailOutcome {
        guard request.isSendable else { return .unanswered(TransferFailure(.invalidRequest)) }
        let end = ContinuousClock.now.advanced(by: remaining)
        let outcome = self.attempt(request, remaining: remaining, shouldContinue: shouldContinue, isFresh: false)
        // A relay that closed a kept connection, for its age or its number of messages, has not
        // read this message.
        guard self.isKeptConnectionAtEnd(outcome) else { return outcome }
        // The first attempt used up part of the time.
        let rest = ContinuousClock.now.duration(to: end)
        guard rest > .zero else { return outcome }
        return self.attempt(request, remaining: rest, shouldContinue: shouldContinue, isFresh: true)
    }

    /// Connects, logs in, sends NOOP and returns the answer.
    func greet(within limit: Duration) -> MailOutcome {
        self.forgetLastOutcome()
        var isSet = self.set(CURLOPT_UPLOAD, 0) && self.set(CURLOPT_NOBODY, 1)
        isSet = isSet && self.set(CURLOPT_CUSTOMREQUEST, "NOOP")
        isSet = isSet && self.set(CURLOPT_TIMEOUT_MS, max(1, limit.milliseconds))
        guard isSet else { return .unanswered(TransferFailure(.other)) }
        return self.outcome(curl_easy_perform(self.pointer))
    }

    /// Whether the last message opened a connection.
    var isNew: Bool { carillon_easy_get_long(self.pointer, CURLINFO_NUM_CONNECTS) > 0 }

    private func isKeptConnectionAtEnd(_ outcome: MailOutcome) -> Bool {
        guard !self.isNew else { return false }
        switch outcome {
        case .answered(let reply): return reply.code == 421 && reply.stage != .content
        case .unanswered(let failure): return failure.reason == .connectionLost && !failure.mayHaveBeenSent
        }
    }

    private func attempt(
        _ request: MailRequest,
        remaining: Duration,
        shouldContinue: @escaping () -> Bool,
        isFresh: Bool
    ) -> MailOutcome {
        self.forgetLastOutcome()
        self.content = request.content
        self.position = 0
        self.shouldContinue = shouldContinue
        self.mayStart = request.mayStart
        defer {
            self.content = []
            self.shouldContinue = { true }
            self.mayStart = nil
        }
        guard self.load(request, remaining: remaining, isFresh: isFresh) else {
            return .unanswered(TransferFailure(.other))
        }
        return self.outcome(curl_easy_perform(self.pointer))
    }

    private func forgetLastOutcome() {
        self.reply.removeAll(keepingCapacity: true)
        self.earlierReply.removeAll(keepingCapacity: true)
        self.isReplyComplete = true
        self.isContentTaken = false
        self.isFenced = false
        self.errorText[0] = 0
    }

    // MARK: Options

    private func configure(_ relay: MailRelay, _ configuration: MailConfiguration) -> Bool {
        let context = Unmanaged.passUnretained(self).toOpaque()
        let numbers: [(CURLoption, Int)] = [
            (CURLOPT_NOSIGNAL, 1),
            (CURLOPT_USE_SSL, Int(CURLUSESSL_ALL.rawValue)),
            (CURLOPT_UPLOAD, 1),
            (CURLOPT_NOPROGRESS, 0),
            (CURLOPT_MAXCONNECTS, 1),
            (CURLOPT_CONNECTTIMEOUT_MS, max(1, configuration.connectTimeout.milliseconds)),
            (CURLOPT_TCP_KEEPALIVE, 1),
            (CURLOPT_TCP_KEEPIDLE, 30),
            (CURLOPT_TCP_KEEPINTVL, 15),
        ]
        var isSet = numbers.allSatisfy { self.set($0, $1) }
        isSet = isSet && self.set(CURLOPT_PROTOCOLS_STR, "smtp,smtps")
        // A proxy from the environment is meant for HTTP.
        isSet = isSet && self.set(CURLOPT_NOPROXY, "*")
        isSet = isSet && self.set(CURLOPT_URL, relay.url)
        if let user = relay.user, let password = relay.password {
            isSet = isSet && self.set(CURLOPT_USERNAME, user) && self.set(CURLOPT_PASSWORD, password)
            isSet = isSet && self.set(CURLOPT_LOGIN_OPTIONS, Self.logins)
        }
        if let file = configuration.caFile { isSet = isSet && self.set(CURLOPT_CAINFO, file) }
        for (option, memory) in [
            (CURLOPT_ERRORBUFFER, UnsafeMutableRawPointer(self.errorText)), (CURLOPT_HEADERDATA, context),
            (CURLOPT_READDATA, context), (CURLOPT_XFERINFODATA, context),
        ] {
            isSet = isSet && carillon_easy_set_pointer(self.pointer, option, memory) == CURLE_OK
        }
        isSet = isSet && carillon_easy_set_sockopt(self.pointer, limitSilence) == CURLE_OK
        isSet = isSet && carillon_easy_set_writer(self.pointer, CURLOPT_HEADERFUNCTION, receiveReply) == CURLE_OK
        isSet = isSet && carillon_easy_set_reader(self.pointer, provideContent) == CURLE_OK
        return isSet && carillon_easy_set_progress(self.pointer, reportProgress) == CURLE_OK
    }

    private func load(_ request: MailRequest, remaining: Duration, isFresh: Bool) -> Bool {
        curl_slist_free_all(self.recipients)
        self.recipients = curl_slist_append(nil, "<\(request.recipient)>")
        guard self.recipients != nil else { return false }
        var isSet = self.set(CURLOPT_MAIL_FROM, "<\(request.sender)>")
        isSet = isSet && carillon_easy_set_list(self.pointer, CURLOPT_MAIL_RCPT, self.recipients) == CURLE_OK
        isSet = isSet && self.set(CURLOPT_TIMEOUT_MS, max(1, remaining.milliseconds))
        isSet = isSet && self.set(CURLOPT_FRESH_CONNECT, isFresh ? 1 : 0)
        let size = curl_off_t(request.content.count)
        return isSet && carillon_easy_set_offset(self.pointer, CURLOPT_INFILESIZE_LARGE, size) == CURLE_OK
    }

    private func set(_ option: CURLoption, _ value: Int) -> Bool {
        carillon_easy_set_long(self.pointer, option, value) == CURLE_OK
    }

    private func set(_ option: CURLoption, _ value: String) -> Bool {
        carillon_easy_set_string(self.pointer, option, value) == CURLE_OK
    }

    // MARK: Outcome

    /// Maps libcurl's result; a refusal by the relay takes precedence.
    private func outcome(_ result: CURLcode) -> MailOutcome {
        if self.isFenced { return .unanswered(TransferFailure(.fenced)) }
        let code = carillon_easy_get_long(self.pointer, CURLINFO_RESPONSE_CODE)
        if result == CURLE_OK { return .answered(MailReply(stage: .content, code: code, text: self.text(of: code))) }
        // After a timeout or a broken connection the code may belong to an earlier reply.
        let isRefusal = code >= 400 && self.isReplyComplete && !Self.isBroken(result)
        if isRefusal { return .answered(MailReply(stage: self.stage(result), code: code, text: self.text(of: code))) }
        if result == CURLE_ABORTED_BY_CALLBACK {
            return .unanswered(
                TransferFailure(.cancelled, mayHaveBeenSent: self.isContentTaken, code: Int(result.rawValue)))
        }
        return .unanswered(
            TransferFailure(curl: result, hasDetail: self.errorText[0] != 0, wasSent: self.isContentTaken))
    }

    private static func isBroken(_ result: CURLcode) -> Bool {
        [CURLE_OPERATION_TIMEDOUT, CURLE_ABORTED_BY_CALLBACK, CURLE_RECV_ERROR].contains(result)
    }

    /// Returns the stage that was refused, which only libcurl's error text tells.
    private func stage(_ result: CURLcode) -> MailReply.Stage {
        let detail = String(cString: self.errorText)
        if detail.hasPrefix("MAIL failed") { return .sender }
        if detail.hasPrefix("RCPT failed") { return .recipient }
        if detail.hasPrefix("DATA failed") || self.isContentTaken { return .content }
        return .session
    }

    /// Returns the last reply with that code, without codes and line breaks.
    private func text(of code: Int) -> String {
        let replies = [self.reply, self.earlierReply]
        guard let reply = replies.first(where: { $0.starts(with: String(code).utf8) }) else { return "" }
        let lines = reply.split { $0 == UInt8(ascii: "\r") || $0 == UInt8(ascii: "\n") }
        return lines.map { String(decoding: $0.dropFirst(4), as: UTF8.self) }.joined(separator: "\n")
    }

    // MARK: Callbacks

    fileprivate func receive(line: UnsafeRawBufferPointer) {
        if self.isReplyComplete {
            swap(&self.reply, &self.earlierReply)
            self.reply.removeAll(keepingCapacity: true)
        }
        // A hyphen after the three-digit code means that more lines follow.
        self.isReplyComplete = line.count < 4 || line[3] != UInt8(ascii: "-")
        let room = Self.maximumReplyBytes - self.reply.count
        if room > 0 { self.reply.append(contentsOf: line.prefix(room)) }
    }

    fileprivate func readContent(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        // Connecting and logging in may have taken a while. A relay drops a message without an end.
        if self.position == 0, self.mayStart?() == false {
            self.isFenced = true
            return Int(CURL_READFUNC_ABORT)
        }
        let count = min(buffer.count, self.content.count - self.position)
        buffer.copyBytes(from: self.content[self.position..<self.position + count])
        self.position += count
        if self.position == self.content.count { self.isContentTaken = true }
        return count
    }

    fileprivate var continues: Bool { self.shouldContinue() }
}

// libcurl calls these on the handle's thread, within `send`. `context` is the handle itself, which
// outlives libcurl's use of it.

private nonisolated func receiveReply(
    _ bytes: UnsafeMutablePointer<CChar>?,
    _ size: Int,
    _ count: Int,
    _ context: UnsafeMutableRawPointer?
) -> Int {
    guard let context else { return 0 }
    let line = UnsafeRawBufferPointer(start: bytes, count: size * count)
    Unmanaged<MailHandle>.fromOpaque(context).takeUnretainedValue().receive(line: line)
    return line.count
}

private nonisolated func provideContent(
    _ bytes: UnsafeMutablePointer<CChar>?,
    _ size: Int,
    _ count: Int,
    _ context: UnsafeMutableRawPointer?
) -> Int {
    guard let context else { return 0 }
    let buffer = UnsafeMutableRawBufferPointer(start: bytes, count: size * count)
    return Unmanaged<MailHandle>.fromOpaque(context).takeUnretainedValue().readContent(into: buffer)
}

private nonisolated func reportProgress(
    _ context: UnsafeMutableRawPointer?,
    _ downloadTotal: curl_off_t,
    _ downloaded: curl_off_t,
    _ uploadTotal: curl_off_t,
    _ uploaded: curl_off_t
) -> CInt {
    guard let context else { return 0 }
    return Unmanaged<MailHandle>.fromOpaque(context).takeUnretainedValue().continues ? 0 : 1
}
