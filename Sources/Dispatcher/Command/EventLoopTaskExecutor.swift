// Carillon · EventLoopTaskExecutor.swift
// SPDX-License-Identifier: Apache-2.0

import NIOCore

/// Runs tasks on an event loop's thread.
///
/// The jobs' two stages do little but talk to Redis on that loop; on its own thread, a reply resumes them without waking
/// another one, which is most of a job's way when there is little to do.
final class EventLoopTaskExecutor: TaskExecutor {
    private let eventLoop: any EventLoop

    init(_ eventLoop: any EventLoop) {
        self.eventLoop = eventLoop
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        self.eventLoop.execute { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
