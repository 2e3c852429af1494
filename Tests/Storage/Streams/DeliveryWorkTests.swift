// Carillon · DeliveryWorkTests.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Storage
import Testing

@Suite("Text form of deliveries", .timeLimit(.minutes(10)))
struct DeliveryWorkTests {
    private static let notification = "01a1f866-0d7b-841c-a9a6-5597aa0575f3"
    private static let device = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"

    private static func work(user: String = "u1", attempt: Int = 0, isRepeat: Bool = false) throws -> DeliveryWork {
        DeliveryWork(
            notification: try #require(NotificationID(Self.notification)),
            device: try #require(NotificationID(Self.device)),
            user: user,
            attempt: attempt,
            isRepeat: isRepeat
        )
    }

    private static func fault(_ text: String) -> DeliveryWork.Fault? {
        do throws(DeliveryWork.Fault) {
            _ = try DeliveryWork(text.utf8)
            return nil
        } catch {
            return error
        }
    }

    @Test(
        "reads the text that it writes, which does not change between releases",
        arguments: [
            ("u1", 0, false, "0 - u1"), ("u1", 12, true, "12 r u1"), ("a b  c ", 1, false, "1 - a b  c "),
            ("é😀", 0, false, "0 - é😀"), (" ", 0, true, "0 r  "),
        ]
    )
    func text(user: String, attempt: Int, isRepeat: Bool, rest: String) throws {
        let work = try Self.work(user: user, attempt: attempt, isRepeat: isRepeat)
        #expect(work.text == "1 \(Self.notification) \(Self.device) \(rest)")
        #expect(try DeliveryWork(work.text.utf8) == work)
    }

    @Test("counts attempts and stays a repeat once a push may have arrived")
    func tries() throws {
        let work = try Self.work()
        #expect(try work.afterTry == Self.work(attempt: 1, isRepeat: true))
        #expect(try work.afterTry.afterTry == Self.work(attempt: 2, isRepeat: true))
    }

    @Test("says since when a delivery has waited, from its first entry on")
    func waiting() throws {
        let first = StreamEntry(id: "1795000000123-4", fields: nil)
        let work = try Self.work(attempt: 2, isRepeat: true).waiting(since: first)
        #expect(work.text == "1 \(Self.notification) \(Self.device) 2 r1795000000123 u1")
        let read = try DeliveryWork(work.text.utf8)
        #expect(read == work)
        #expect(read.since == Timestamp(milliseconds: 1_795_000_000_123))
        // Moved to its stream and back into the retry set.
        let later = StreamEntry(id: "1795000099000-0", fields: nil)
        #expect(read.afterTry.waiting(since: later).since == read.since)
        #expect(read.fromTheStart.since == nil)
        let fresh = try Self.work().waiting(since: later)
        #expect(fresh.text.hasSuffix(" 0 1795000099000 u1"))
        #expect(!fresh.isRepeat)
        for digits in ["99999999999999", "999999999999999", "99999999999999999999999999"] {
            let text = "1 \(Self.notification) \(Self.device) 0 r\(digits) u1"
            #expect(try DeliveryWork(text.utf8).isRepeat)
        }
    }

    @Test("rejects a newer format")
    func newer() {
        #expect(Self.fault("2 whatever comes") == .newerFormat)
        #expect(Self.fault("17") == .newerFormat)
    }

    @Test(
        "rejects malformed text",
        arguments: [
            "", " ", "x", "1", "1 \(notification)", "1 \(notification) \(device) 0 -", "1 no \(device) 0 - u1",
            "1 \(notification) no 0 - u1", "1 \(notification) \(device) x - u1", "-",
            "1  \(notification) \(device) 0 - u1", "1 \(notification) \(device) -1 - u1",
            // An attempt number that could not be increased.
            "1 \(notification) \(device) 9223372036854775807 - u1", "1 \(notification) \(device) 2147483647 r u1",
        ]
    )
    func malformed(text: String) {
        #expect(Self.fault(text) == .malformed)
    }
}
