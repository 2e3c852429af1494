// Carillon · Alarms.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Operations

/// The alarms of a dispatcher's services.
struct Alarms: Sendable {
    /// The deadlines of awaited proofs.
    let proofs = Alarm()
    /// Due retries and held-back deliveries.
    let retries = Alarm()
    /// Webhooks whose events wait.
    let webhooks = Alarm()
    /// Jobs that were moved aside.
    let overflows = Alarm()
    /// Wakes ``DueService``, which rings the alarms below.
    let due = Alarm()
    /// One for each lane, by rank.
    let schedules = Lane.allCases.map { _ in Alarm() }
    let followUps = Alarm()
    let digests = Alarm()
    let replays = Alarm()
    /// One for each loop of ``BroadcastService``.
    let broadcasts = (0..<BroadcastService.loops).map { _ in Alarm() }
}
