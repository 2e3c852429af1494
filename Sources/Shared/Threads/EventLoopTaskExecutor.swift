// Carillon · EventLoopTaskExecutor.swift
// SPDX-License-Identifier: Apache-2.0

package import NIOCore

/// Runs tasks on an event loop's thread.
///
/// What mostly talks to that loop's channels is resumed on its own thread by what they read, without waking another one.
/// Whatever takes long must leave it: every other channel of the loop waits meanwhile.
package final class EventLoopTaskExecutor: TaskExecutor {
    private let eventLoop: any EventLoop

    package init(_ eventLoop: any EventLoop) {
        self.eventLoop = eventLoop
    }

    package func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        self.eventLoop.execute { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
}
