// Carillon · Watchdog.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Synchronization

/// Ends the process if one input takes too long, on a thread of its own.
final class Watchdog: Sendable {
    private let limit: Duration
    private let target: String
    private let file: String
    private let began = Mutex<ContinuousClock.Instant?>(nil)

    init(limit: Duration, target: String, file: String) {
        self.limit = limit
        self.target = target
        self.file = file
    }

    func start() {
        Thread.detachNewThread {
            while true {
                Thread.sleep(forTimeInterval: 0.5)
                guard let began = self.began.withLock({ $0 }), ContinuousClock.now - began > self.limit else {
                    continue
                }
                print("\(self.target) FAULT: an input took longer than \(self.limit); it is in \(self.file)")
                exit(1)
            }
        }
    }

    func begin() { self.began.withLock { $0 = .now } }
    func end() { self.began.withLock { $0 = nil } }
}
