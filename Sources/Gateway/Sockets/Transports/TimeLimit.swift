// Carillon · TimeLimit.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore
import Protocols

/// A deadline that is often moved and rarely reached.
///
/// Confined to its event loop. To cancel a timer, NIO searches all timers of the loop, which costs
/// more with each connection. So a timer is left to fire; if the deadline was moved meanwhile, it
/// waits again.
final class TimeLimit {
    private let eventLoop: any EventLoop
    private var moment: NIODeadline?
    private var action: () -> Void = {}
    /// When the current timer fires; the others are ignored.
    private var timer: NIODeadline?

    init(on eventLoop: any EventLoop) {
        self.eventLoop = eventLoop
    }

    /// Calls `action` after `duration`, unless the limit is set again or removed before.
    func set(_ duration: Duration, _ action: @escaping () -> Void) {
        let moment = self.eventLoop.now + TimeAmount(duration)
        self.moment = moment
        self.action = action
        if self.timer.map({ moment < $0 }) ?? true { self.schedule(moment) }
    }

    func remove() {
        self.moment = nil
        self.action = {}
    }

    private func schedule(_ moment: NIODeadline) {
        self.timer = moment
        self.eventLoop.assumeIsolated().scheduleTask(deadline: moment) { [weak self] in self?.fire(moment) }
    }

    private func fire(_ scheduled: NIODeadline) {
        guard scheduled == self.timer else { return }
        self.timer = nil
        guard let moment else { return }
        guard moment <= self.eventLoop.now else { return self.schedule(moment) }
        let action = self.action
        self.remove()
        action()
    }
}

/// The clock of state machines.
package func systemUptime() -> Milliseconds { Milliseconds(NIODeadline.now().uptimeNanoseconds / 1_000_000) }
