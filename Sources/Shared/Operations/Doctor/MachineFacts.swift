// Carillon · MachineFacts.swift
// SPDX-License-Identifier: Apache-2.0

import Core
import Glibc
import Storage

/// The machine's limits for a process.
package struct MachineFacts: Sendable, Equatable {
    /// The program to check for.
    package enum Role: Sendable {
        case gateway, dispatcher
    }

    /// The backlog of a gateway's listener.
    static let backlog: Int64 = 4_096

    /// A gateway of the largest sizes has 100,000 sockets; see docs/fleet.md.
    private static let gatewayFiles: UInt64 = 131_072
    /// A dispatcher's files besides its blocking reads: the least it works with, and enough.
    private static let dispatcherFiles: (least: UInt64, enough: UInt64) = (256, 512)
    /// Limits are set in multiples of this.
    private static let filesUnit: UInt64 = 1_024

    /// The hard limit of RLIMIT_NOFILE, to which both programs raise the soft one.
    var mostOpenFiles: UInt64 = 0
    var readers = Readers()
    /// net.core.somaxconn; nil if unknown.
    var listenBacklog: Int64?
    /// net.ipv4.ip_local_port_range.
    var ports: ClosedRange<Int64>?
    /// net.netfilter.nf_conntrack_max and the current count; nil without connection tracking.
    var tracked: Tracked?

    struct Tracked: Sendable, Equatable {
        let count: Int64
        let maximum: Int64
    }

    /// A dispatcher's connections for blocking reads of Redis.
    struct Readers: Sendable, Equatable {
        var jobs: UInt64 = 0
        /// Those of all providers; a dispatcher reads only the deliveries of providers in use.
        var deliveries: UInt64 = 0

        var all: UInt64 { self.jobs + self.deliveries }
    }

    /// Returns the connections with which a dispatcher reads Redis.
    ///
    /// - Parameters:
    ///   - parts: the number of parts of Redis.
    ///   - former: the earlier numbers.
    static func readers(parts: Int, former: [Int]) -> Readers {
        let keys = Keyspace(parts: parts, former: former)
        let lanes = Lane.allCases.count
        return Readers(
            jobs: UInt64(keys.jobSources.count * lanes),
            deliveries: UInt64(keys.parts.count * Provider.all.count * lanes))
    }

    /// Returns findings about the limits that matter to a program.
    func findings(_ role: Role) -> [Finding] {
        switch role {
        case .gateway:
            [
                self.filesFinding(least: Self.filesUnit, enough: Self.gatewayFiles, use: "a socket takes one"),
                self.backlogFinding, self.trackedFinding,
            ].compactMap(\.self)
        case .dispatcher:
            [
                self.filesFinding(
                    least: self.readers.jobs + Self.dispatcherFiles.least,
                    enough: self.readers.all + Self.dispatcherFiles.enough,
                    use: "reading Redis takes \(self.readers.all) with all providers"),
                self.portsFinding,
            ].compactMap(\.self)
        }
    }

    private func filesFinding(least: UInt64, enough: UInt64, use: String) -> Finding {
        let limit = self.mostOpenFiles
        let found = "at most \(limit); \(use)"
        let advice = (enough + Self.filesUnit - 1) / Self.filesUnit * Self.filesUnit
        let remedy = "ulimit -n \(advice) before the start, LimitNOFILE=\(advice) in a systemd unit"
        if limit < least { return Finding(.fail, "open files", found, fix: remedy) }
        if limit < enough { return Finding(.warn, "open files", found, fix: remedy) }
        return Finding(.ok, "open files", found)
    }

    private var backlogFinding: Finding? {
        guard let backlog = self.listenBacklog else { return nil }
        guard backlog >= Self.backlog else {
            return Finding(
                .warn, "listen backlog",
                "net.core.somaxconn is \(backlog): when many clients reconnect at once, some are refused",
                fix: "sysctl -w net.core.somaxconn=\(Self.backlog), and the same in /etc/sysctl.d")
        }
        return Finding(.ok, "listen backlog", "net.core.somaxconn is \(backlog)")
    }

    private var portsFinding: Finding? {
        guard let ports else { return nil }
        let found = "\(ports.lowerBound) to \(ports.upperBound)"
        guard ports.count < 4_096 else { return Finding(.ok, "local ports", found) }
        return Finding(
            .warn, "local ports", "\(found) are few ports for calls to providers",
            fix: "sysctl -w net.ipv4.ip_local_port_range='32768 60999'")
    }

    private var trackedFinding: Finding? {
        guard let tracked = self.tracked, tracked.maximum > 0 else { return nil }
        let found = "\(tracked.count) of \(tracked.maximum)"
        guard tracked.count < tracked.maximum * 3 / 4 else {
            return Finding(
                .warn, "tracked connections", "\(found): at the limit the kernel drops packets",
                fix: "raise net.netfilter.nf_conntrack_max with sysctl")
        }
        return Finding(.ok, "tracked connections", found)
    }
}

/// The permissions of a file with a secret.
package struct FileFacts: Sendable, Equatable {
    let path: String
    /// The permission bits; nil if unknown.
    let mode: UInt32?

    init(path: String, mode: UInt32?) {
        self.path = path
        self.mode = mode
    }

    /// Reads the permissions of a file.
    package init(path: String) {
        var status = stat()
        self.init(path: path, mode: stat(path, &status) == 0 ? UInt32(status.st_mode) : nil)
    }

    /// The finding; nil if the file cannot be read, which the reader of the file reports.
    package var finding: Finding? {
        guard let mode else { return nil }
        let check = "secret files"
        guard mode & 0o004 == 0 else {
            return Finding(
                .warn, check, "\(self.path) is readable by every user of this machine",
                fix: "chmod o= '\(self.path)', and make the service's user its owner")
        }
        return Finding(.ok, check, self.path)
    }
}

/// The validity of a certificate.
package struct CertificateFacts: Sendable, Equatable {
    private static let notice: Duration = .seconds(14 * 86_400)

    let notBefore: Timestamp
    let notAfter: Timestamp

    package init(notBefore: Timestamp, notAfter: Timestamp) {
        self.notBefore = notBefore
        self.notAfter = notAfter
    }

    /// Returns the finding at a time.
    package func finding(now: Timestamp) -> Finding {
        let check = "tls certificate"
        let remedy = "renew it, then send the gateway SIGHUP"
        if now < self.notBefore {
            return Finding(
                .fail, check, "not valid before \(self.notBefore.rfc3339)", fix: "check the machine's clock")
        }
        if now >= self.notAfter {
            return Finding(.fail, check, "expired at \(self.notAfter.rfc3339)", fix: remedy)
        }
        let found = "valid until \(self.notAfter.rfc3339); the key matches"
        let outcome: Finding.Outcome = self.notAfter - now < Self.notice ? .warn : .ok
        return Finding(outcome, check, found, fix: outcome == .ok ? nil : remedy)
    }
}

/// How far other clocks are ahead of this machine's; nil if unknown.
package struct ClockFacts: Sendable, Equatable {
    private static let noticeable: Duration = .seconds(1)

    var redis: Duration?
    var database: Duration?
    /// The largest offset at which tokens are still checked correctly.
    var tolerable: Duration

    package init(redis: Duration? = nil, database: Duration? = nil, tolerable: Duration = .seconds(30)) {
        self.redis = redis
        self.database = database
        self.tolerable = tolerable
    }

    /// The findings about the clocks.
    var findings: [Finding] {
        let clocks = [("Redis", self.redis), ("PostgreSQL", self.database)].compactMap { name, offset in
            offset.map { (name: name, offset: $0) }
        }
        guard let worst = clocks.max(by: { abs($0.offset) < abs($1.offset) }) else {
            return Finding.skipped(["clocks"], needs: "Redis or PostgreSQL")
        }
        let found = clocks.map { "\($0.name)'s is \(Self.text($0.offset))" }.joined(separator: ", ")
        let remedy = "synchronise all machines by NTP: timedatectl set-ntp true, or chrony"
        if abs(worst.offset) > self.tolerable { return [Finding(.fail, "clocks", found, fix: remedy)] }
        if abs(worst.offset) > Self.noticeable { return [Finding(.warn, "clocks", found, fix: remedy)] }
        return [Finding(.ok, "clocks", found)]
    }

    private static func text(_ offset: Duration) -> String {
        let milliseconds = offset.inMilliseconds
        return "\(milliseconds.magnitude) ms \(milliseconds < 0 ? "behind" : "ahead")"
    }
}

private func abs(_ duration: Duration) -> Duration { duration < .zero ? .zero - duration : duration }

/// The machine's time-zone data.
struct ZoneFacts: Sendable, Equatable {
    /// The version, such as `2025b`, or a hash if the data has none.
    var version: String
    /// Common zones that this machine does not have.
    var missing: [String]
    /// The version that stored schedules were computed with; nil if unknown.
    var stored: String?
    /// The current year.
    var year: Int

    /// Whether the data is complete, recent and the one that stored schedules use.
    var finding: Finding {
        let check = "time zones"
        guard self.missing.isEmpty else {
            return Finding(
                .fail, check, "no rules for \(self.missing.joined(separator: ", "))",
                fix: "install the package tzdata, or set TZDIR to the folder of the zones")
        }
        if let stored, stored != self.version {
            return Finding(
                .warn, check, "\(self.version); stored schedules were computed with \(stored)",
                fix: "give all machines the same tzdata; dispatchers recompute them within a minute")
        }
        if let year = Int(self.version.prefix(4)), self.year - year >= 2 {
            return Finding(
                .warn, check, "\(self.version) is old; zone rules have changed since", fix: "update the package tzdata"
            )
        }
        return Finding(.ok, check, self.version)
    }
}
