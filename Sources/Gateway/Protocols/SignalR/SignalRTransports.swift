// Carillon · SignalRTransports.swift
// SPDX-License-Identifier: Apache-2.0

/// The transports by their names in the protocol, in order of preference.
package enum SignalRTransport: String, Sendable, CaseIterable {
    case webSockets = "WebSockets"
    case serverSentEvents = "ServerSentEvents"
    case longPolling = "LongPolling"
}

/// The server side of one long-polling connection: decides when and how each GET is answered.
///
/// Written records wait for a GET, and a GET waits for records. The caller numbers the GETs. At
/// most one GET is parked; a newer one releases it.
///
/// The client's next poll proves that an answer has arrived; after a Close message, so does its
/// DELETE. So a push is confirmed once ``recordsProven`` reaches the value that ``recordsTaken``
/// had after that push.
package struct SignalRPollingState: Sendable {
    /// The time after which a parked GET gets an empty answer.
    ///
    /// Many proxies give up on a response after 60 s. Microsoft's clients repeat a GET after 100 s.
    /// ``silence`` must end the connection before that, or the repeat would count as proof of a
    /// lost answer.
    private static let pollTimeout: Milliseconds = 40_000
    /// The time a connection lives without a parked GET.
    private static let silence: Milliseconds = 15_000
    /// The most bytes of an answer, unless its first record is longer.
    ///
    /// Small enough to download in time: ``silence`` ends the connection of a client that takes
    /// longer.
    private static let answerBytes = 64 * 1024

    private struct Poll {
        let number: UInt64
        let since: Milliseconds
    }

    /// The number of records written so far.
    package private(set) var recordsTaken: UInt64 = 0
    /// The number of records put into answers so far.
    package private(set) var recordsAnswered: UInt64 = 0
    /// The number of records whose arrival a later GET proved.
    package private(set) var recordsProven: UInt64 = 0
    /// Whether the last GET was refused or lost; the client may be gone.
    package private(set) var isAbandoned = false
    /// Whether everything up to the end was put into answers.
    package var hasAnsweredClose: Bool { self.isClosing && self.waiting.isEmpty }

    private let bufferBytes: Int
    private var hasPolled = false
    private var parked: Poll?
    /// The GET whose answer contains unproven records.
    private var unproven: Poll?
    private var repeats = PollRepeats()
    /// The records that wait for a GET.
    private var waiting: [[UInt8]] = []
    private var waitingBytes = 0
    /// Whether writing has ended: the client gets the rest, then the end.
    private var isClosing = false
    private var isOver = false
    /// The time since which no GET is parked.
    private var idleSince: Milliseconds

    /// Starts a negotiated connection.
    ///
    /// - Parameter bufferBytes: the bytes that may wait for a GET. One record may exceed it; the
    ///   next then ends the connection.
    package init(bufferBytes: Int, now: Milliseconds) {
        self.bufferBytes = bufferBytes
        self.idleSince = now
    }

    /// Handles a GET.
    ///
    /// The first GET gets an empty answer at once. A later one proves earlier answers, releases a
    /// parked GET with 204, and is answered at once if records wait. A repeated GET ends the
    /// connection if the lost answer contained records.
    package mutating func poll(_ number: UInt64, mark: PollMark? = nil, now: Milliseconds) -> [SignalRPollingAction] {
        guard !self.isOver else { return [Self.unknown(number)] }
        if self.repeats.isRepeat(mark, now: now), self.unproven != nil {
            return [Self.unknown(number)] + self.end(.responseLost)
        }
        self.recordsProven = self.recordsAnswered
        self.unproven = nil
        self.isAbandoned = false
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

    /// Buffers the bytes of a ``SignalRAction/write(_:)`` for the client; call ``flush(now:)``
    /// after the last of a round.
    ///
    /// - Returns: the end if too much waits already, else nothing.
    package mutating func write(_ bytes: [UInt8]) -> [SignalRPollingAction] {
        guard !self.isOver, !self.isClosing else { return [] }
        guard self.waitingBytes <= self.bufferBytes else { return self.end(.overflow) }
        self.waiting.append(bytes)
        self.waitingBytes += bytes.count
        self.recordsTaken += 1
        return []
    }

    /// Answers the parked GET with the waiting records, or with the first of them if they are long.
    package mutating func flush(now: Milliseconds) -> [SignalRPollingAction] {
        guard !self.isOver, let poll = self.parked else { return [] }
        guard !self.waiting.isEmpty else { return self.isClosing ? self.end(.closed) : [] }
        var body: [UInt8] = []
        var count = 0
        for record in self.waiting {
            guard count == 0 || body.count + record.count <= Self.answerBytes else { break }
            body += record
            count += 1
        }
        self.waiting.removeFirst(count)
        self.waitingBytes -= body.count
        self.parked = nil
        self.idleSince = now
        self.recordsAnswered += UInt64(count)
        self.unproven = poll
        return [.answer(poll: poll.number, SignalRResponse(status: 200, contentType: Self.contentType, body: body))]
    }

    /// Ends writing: the client gets the rest, then 204 for its next GET.
    package mutating func close(now: Milliseconds) -> [SignalRPollingAction] {
        guard !self.isOver, !self.isClosing else { return [] }
        self.isClosing = true
        return self.flush(now: now)
    }

    /// Answers the parked GET with 401 because its token has expired; records wait for the next
    /// GET.
    package mutating func refuse(now: Milliseconds) -> [SignalRPollingAction] {
        guard !self.isOver else { return [] }
        self.isAbandoned = true
        guard let poll = self.parked else { return [] }
        self.parked = nil
        self.idleSince = now
        return [.answer(poll: poll.number, .refusal(401, "The token has expired."))]
    }

    /// Handles a DELETE, whose answer is ``SignalRResponse/deleted``.
    package mutating func delete() -> [SignalRPollingAction] {
        self.isOver ? [] : self.end(.deleted)
    }

    /// Handles a GET whose connection broke before its answer was written.
    ///
    /// A client may repeat a GET that was parked. If the lost answer contained records, the
    /// connection ends.
    package mutating func pollLost(_ number: UInt64, now: Milliseconds) -> [SignalRPollingAction] {
        guard !self.isOver else { return [] }
        if self.parked?.number == number {
            self.parked = nil
            self.idleSince = now
            self.isAbandoned = true
        } else if self.unproven?.number == number {
            return self.end(.responseLost)
        }
        return []
    }

    /// Answers a GET that was parked too long, and ends a connection without polls.
    package mutating func tick(now: Milliseconds) -> [SignalRPollingAction] {
        guard !self.isOver else { return [] }
        if let poll = self.parked {
            if !self.waiting.isEmpty || self.isClosing { return self.flush(now: now) }
            guard now - poll.since >= Self.pollTimeout else { return [] }
            self.parked = nil
            self.idleSince = now
            return [.answer(poll: poll.number, Self.nothing)]
        }
        return now - self.idleSince >= Self.silence ? self.end(.silent) : []
    }

    /// The reference server's content type; clients read it as UTF-8.
    private static let contentType = "application/octet-stream"
    private static let nothing = SignalRResponse(status: 200)
    private static let over = SignalRResponse(status: 204)

    private static func unknown(_ poll: UInt64) -> SignalRPollingAction {
        .answer(poll: poll, .unknownConnection)
    }

    private mutating func release() -> [SignalRPollingAction] {
        guard let poll = self.parked else { return [] }
        self.parked = nil
        return [.answer(poll: poll.number, Self.over)]
    }

    private mutating func end(_ end: SignalRPollingAction.End) -> [SignalRPollingAction] {
        self.isOver = true
        self.waiting = []
        return self.release() + [.end(end)]
    }
}

/// An action for a long-polling connection, in list order.
package enum SignalRPollingAction: Sendable, Equatable {
    /// Answer this GET.
    case answer(poll: UInt64, SignalRResponse)
    /// End the connection: forget its id, so that later requests get 404, and call
    /// ``SignalRStateMachine/transportLost(now:)``.
    case end(End)

    /// Why a connection ends.
    package enum End: String, Sendable, Equatable {
        /// The server closed it, and the client has everything.
        case closed
        /// The client sent DELETE.
        case deleted
        /// No GET came in time.
        case silent
        /// An answer was lost, and repeating its records might duplicate them.
        case responseLost
        /// The buffer for the client overflowed.
        case overflow
    }
}
