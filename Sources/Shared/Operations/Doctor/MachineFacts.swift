// Carillon · MachineFacts.swift
// SPDX-License-Identifier: Apache-2.0

/// What the machine allows a process, as far as it matters to us.
package struct MachineFacts: Sendable, Equatable {
    /// What the process is, as they need different things.
    package enum Role: Sendable {
        case gateway, dispatcher
    }

    /// Connections that a gateway's listener lets wait.
    package static let backlog: Int64 = 4_096

    /// RLIMIT_NOFILE, as it is and as far as it may be raised.
    package var openFiles: UInt64 = 0
    package var mostOpenFiles: UInt64 = 0
    /// net.core.somaxconn; nil if it cannot be read.
    package var listenBacklog: Int64?
    /// net.ipv4.ip_local_port_range.
    package var ports: ClosedRange<Int64>?
    /// net.netfilter.nf_conntrack_max and how many are tracked; nil where nothing is tracked.
    package var tracked: Tracked?

    package struct Tracked: Sendable, Equatable {
        package let count: Int64
        package let maximum: Int64

        package init(count: Int64, maximum: Int64) {
            self.count = count
            self.maximum = maximum
        }
    }

    package init() {}

    /// What is to be said about it.
    package func findings(_ role: Role) -> [Finding] {
        switch role {
        case .gateway:
            [self.filesFinding(least: 1_024, enough: 65_536, per: "a socket takes one"), self.backlogFinding]
                .compactMap(\.self) + [self.trackedFinding].compactMap(\.self)
        case .dispatcher:
            [self.filesFinding(least: 256, enough: 1_024, per: "a connection takes one"), self.portsFinding]
                .compactMap(\.self)
        }
    }

    private func filesFinding(least: UInt64, enough: UInt64, per: String) -> Finding {
        let found = "\(self.openFiles); \(per)"
        let remedy = "ulimit -n \(enough) before the start, LimitNOFILE=\(enough) in a systemd unit"
        if self.openFiles < least { return Finding(.fail, "open files", found, mend: remedy) }
        if self.openFiles < enough { return Finding(.warn, "open files", found, mend: remedy) }
        return Finding(.ok, "open files", found)
    }

    private var backlogFinding: Finding? {
        guard let backlog = self.listenBacklog else { return nil }
        guard backlog >= Self.backlog else {
            return Finding(
                .warn, "listen backlog",
                "net.core.somaxconn is \(backlog): when many clients come back at once, some are turned away",
                mend: "sysctl -w net.core.somaxconn=\(Self.backlog), and the same in /etc/sysctl.d")
        }
        return Finding(.ok, "listen backlog", "net.core.somaxconn is \(backlog)")
    }

    private var portsFinding: Finding? {
        guard let ports = self.ports, ports.count < 4_096 else { return nil }
        return Finding(
            .warn, "local ports", "\(ports.lowerBound) to \(ports.upperBound) are few for calls of providers",
            mend: "sysctl -w net.ipv4.ip_local_port_range='32768 60999'")
    }

    private var trackedFinding: Finding? {
        guard let tracked = self.tracked, tracked.maximum > 0 else { return nil }
        let found = "\(tracked.count) of \(tracked.maximum)"
        guard tracked.count < tracked.maximum * 3 / 4 else {
            return Finding(
                .warn, "tracked connections", "\(found): beyond that the kernel drops packets",
                mend: "raise net.netfilter.nf_conntrack_max with sysctl")
        }
        return Finding(.ok, "tracked connections", found)
    }
}
