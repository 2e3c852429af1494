// Carillon · MachineClock.swift
// SPDX-License-Identifier: Apache-2.0

import Foundation
import Support
import Testing

/// A machine clock that a test sets, as a library preloaded between a program and the C library.
///
/// The monotonic clock stays right, as it does when an administrator sets the time.
final class MachineClock: Sendable {
    private static let source = #"""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <fcntl.h>
        #include <stdint.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        #include <sys/time.h>
        #include <time.h>

        static int64_t ahead(void) {
            static const volatile int64_t *seconds;
            if (!seconds) {
                const char *path = getenv("TEST_CLOCK");
                int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
                void *memory = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
                if (memory == MAP_FAILED) abort();
                seconds = memory;
            }
            return *seconds;
        }

        int clock_gettime(clockid_t clock, struct timespec *moment) {
            static int (*original)(clockid_t, struct timespec *);
            if (!original) original = dlsym(RTLD_NEXT, "clock_gettime");
            int result = original(clock, moment);
            if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) moment->tv_sec += ahead();
            return result;
        }

        int gettimeofday(struct timeval *moment, void *zone) {
            struct timespec now;
            int result = clock_gettime(CLOCK_REALTIME, &now);
            moment->tv_sec = now.tv_sec;
            moment->tv_usec = now.tv_nsec / 1000;
            return result;
        }

        time_t time(time_t *moment) {
            struct timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            if (moment) *moment = now.tv_sec;
            return now.tv_sec;
        }
        """#

    /// Variables for a program that uses this clock.
    let environment: [String: String]
    private let file: String

    /// Compiles the library with the C compiler of the Swift toolchain.
    init(in directory: TemporaryDirectory) async throws {
        let (source, library) = (directory.file("clock.c"), directory.file("clock.so"))
        self.file = directory.file("clock.ahead")
        self.environment = ["LD_PRELOAD": library, "TEST_CLOCK": self.file]
        try Self.source.write(toFile: source, atomically: false, encoding: .utf8)
        let compiler = try await ChildProcess.spawn(
            "clang", ["-shared", "-fPIC", "-O1", "-o", library, source], directory: directory.path)
        #expect(try await compiler.waitForExit() == .code(0), "\(compiler.tail())")
        try self.set(ahead: 0)
    }

    /// Puts the clock ahead of the right time.
    func set(ahead seconds: Int64) throws {
        let bytes = withUnsafeBytes(of: seconds.littleEndian) { Data($0) }
        // Written in place, because the programs map this file.
        guard let handle = FileHandle(forUpdatingAtPath: self.file) else {
            try bytes.write(to: URL(fileURLWithPath: self.file))
            return
        }
        try handle.write(contentsOf: bytes)
        try handle.close()
    }
}
