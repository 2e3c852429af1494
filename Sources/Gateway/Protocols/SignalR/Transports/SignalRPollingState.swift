// Carillon · SignalRPollingState.swift
// SPDX-License-Identifier: Apache-2.0

/// The server's side of one long-polling connection: which GET is answered when, and with what.
///
/// What is written waits for a GET, which waits for what is written. Times are milliseconds of one monotonic clock; the
/// caller numbers the GETs. At most one GET is parked: a newer one releases it.
///
/// A response proves nothing about its arrival; that the client polls again does. So what is pushed is confirmed once
/// ``recordsProven`` has reached the ``recordsTaken`` of its time.
package struct SignalRPollingState: Sendable {
    /// Times are milliseconds.
    package struct Limits: Sendable, Equatable {
        /// How long a GET is parked before it is answered with nothing.
        package var pollTimeout: Int64
        /// How long the connection lives without a parked GET.
        package var silence: Int64
        /// What waits for a GET at most; one record may go beyond, then the next ends the connection.
        package var bufferBytes: Int

        package init(pollTimeout: Int64 = 90_000, silence: Int64 = 15_000, bufferBytes: Int = 1_000_000) {
            self.pollTimeout = pollTimeout
            self.silence = silence
            self.bufferBytes = bufferBytes
        }
    }

    private struct Poll {
        let number: UInt64
        let since: Int64
    }

    /// Records that were written so far.
    package private(set) var recordsTaken: UInt64 = 0
    /// Those of them that an answer holds.
    package private(set) var recordsAnswered: UInt64 = 0
    /// Those whose arrival a later GET proved.
    package private(set) var recordsProven: UInt64 = 0

    private let limits: Limits
    private var hasPolled = false
    private var parked: Poll?
    /// The GET whose answer holds records that are not proven.
    private var unproven: UInt64?
    private var buffer: [UInt8] = []
    /// Nothing more is written: the client gets the rest, and then the end.
    private var isClosing = false
    private var isOver = false
    /// When no GET was parked any more.
    private var idleSince: Int64

    /// Begins a connection that was negotiated.
    package init(limits: Limits = Limits(), now: Int64) {
        self.limits = limits
        self.idleSince = now
    }

    /// Nothing comes any more.
    package var isEnded: Bool { self.isOver }

    /// Whether a GET waits for something to be written.
    package var isPolled: Bool { self.parked != nil }

    /// When ``tick(now:)`` has something to do at the latest; nil if never.
    package var nextDeadline: Int64? {
        guard !self.isOver else { return nil }
        return self.parked.map { $0.since + self.limits.pollTimeout } ?? (self.idleSince + self.limits.silence)
    }

    /// A GET arrived.
    ///
    /// The first is answered at once with nothing. A later one proves what was answered before it, releases a GET that
    /// is still parked with 204, and is answered at once if something waits.
    package mutating func poll(_ number: UInt64, now: Int64) -> [SignalRPollingAction] {
        guard !self.isOver else { return [.answer(poll: number, .refusal(404, "No Connection with that ID"))] }
        self.recordsProven = self.recordsAnswered
        self.unproven = nil
        var actions = self.release()
        guard self.hasPolled else {
            self.hasPolled = true
            self.idleSince = now
            return actions + [.answer(poll: number, Self.nothing)]
        }
        self.parked = Poll(number: number, since: now)
        actions += self.flush(now: now)
        return actions
    }

    /// Takes whole records for the client; ``flush(now:)`` comes after the last of a round.
    ///
    /// - Parameters:
    ///   - bytes: Of a ``SignalRAction/write(_:)``.
    ///   - records: How many they are.
    /// - Returns: Nothing, or the end if too much waits already.
    package mutating func write(_ bytes: [UInt8], records: Int = 1) -> [SignalRPollingAction] {
        guard !self.isOver, !self.isClosing else { return [] }
        guard self.buffer.count <= self.limits.bufferBytes else { return self.end(.overflow) }
        if self.buffer.isEmpty { self.buffer = bytes } else { self.buffer.append(contentsOf: bytes) }
        self.recordsTaken += UInt64(clamping: records)
        return []
    }

    /// Answers the parked GET with what was written since.
    package mutating func flush(now: Int64) -> [SignalRPollingAction] {
        guard !self.isOver, let poll = self.parked else { return [] }
        guard !self.buffer.isEmpty else { return self.isClosing ? self.end(.closed) : [] }
        let body = self.buffer
        self.buffer = []
        self.parked = nil
        self.idleSince = now
        self.recordsAnswered = self.recordsTaken
        self.unproven = poll.number
        return [.answer(poll: poll.number, SignalRResponse(status: 200, contentType: Self.contentType, body: body))]
    }

    /// The server wrote its last: the client gets it, and 204 for the GET after.
    package mutating func close(now: Int64) -> [SignalRPollingAction] {
        guard !self.isOver, !self.isClosing else { return [] }
        self.isClosing = true
        return self.flush(now: now)
    }

    /// Answers the parked GET with 401, as its credential has expired; what is written waits for
    /// the next GET.
    package mutating func refuse(now: Int64) -> [SignalRPollingAction] {
        guard !self.isOver, let poll = self.parked else { return [] }
        self.parked = nil
        self.idleSince = now
        return [.answer(poll: poll.number, .refusal(401, "The token has expired."))]
    }

    /// The client sent DELETE, whose own answer is ``SignalRResponse/deleted``.
    package mutating func delete() -> [SignalRPollingAction] {
        self.isOver ? [] : self.end(.deleted)
    }

    /// A GET's connection broke before its answer was written.
    ///
    /// One that was only parked may be repeated; with one whose answer held records the connection ends.
    package mutating func pollLost(_ number: UInt64, now: Int64) -> [SignalRPollingAction] {
        guard !self.isOver else { return [] }
        if self.parked?.number == number {
            self.parked = nil
            self.idleSince = now
        } else if self.unproven == number {
            return self.end(.responseLost)
        }
        return []
    }

    /// Does what is due: the answer with nothing, and the end of a connection without polls.
    package mutating func tick(now: Int64) -> [SignalRPollingAction] {
        guard !self.isOver else { return [] }
        if let poll = self.parked {
            if !self.buffer.isEmpty || self.isClosing { return self.flush(now: now) }
            guard now - poll.since >= self.limits.pollTimeout else { return [] }
            self.parked = nil
            self.idleSince = now
            return [.answer(poll: poll.number, Self.nothing)]
        }
        return now - self.idleSince >= self.limits.silence ? self.end(.silent) : []
    }

    /// As the reference server calls it; clients read it as UTF-8.
    private static let contentType = "application/octet-stream"
    private static let nothing = SignalRResponse(status: 200)
    private static let over = SignalRResponse(status: 204)

    private mutating func release() -> [SignalRPollingAction] {
        guard let poll = self.parked else { return [] }
        self.parked = nil
        return [.answer(poll: poll.number, Self.over)]
    }

    private mutating func end(_ end: SignalRPollingAction.End) -> [SignalRPollingAction] {
        self.isOver = true
        self.buffer = []
        return self.release() + [.end(end)]
    }
}
