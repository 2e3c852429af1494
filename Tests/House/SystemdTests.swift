// Carillon · SystemdTests.swift
// SPDX-License-Identifier: Apache-2.0

import Testing

@Suite("systemd", .timeLimit(.minutes(10)))
struct SystemdTests {
    private static func lines(_ service: String) throws -> [String] {
        try House.text("deploy/systemd/carillon-\(service)@.service").split(separator: "\n").map { String($0) }
    }

    @Test(
        "a unit drains and restarts, but gives up on a faulty configuration",
        arguments: ["gateway", "dispatcher"])
    func unit(service: String) throws {
        let lines = try Self.lines(service)
        func value(_ key: String) -> String? {
            lines.first { $0.hasPrefix(key + "=") }.map { String($0.dropFirst(key.count + 1)) }
        }
        #expect(value("Type") == "exec")
        #expect(value("ExecStart")?.hasPrefix("/usr/local/bin/\(service) ") == true)
        #expect(value("ExecReload")?.contains("-HUP") == true)
        #expect(value("User") == "carillon")
        #expect(try House.text("deploy/systemd/carillon.sysusers").contains("\nu carillon "))
        #expect(value("RestartPreventExitStatus") == "78", "EX_CONFIG, as ExitStatus.configuration")
        let stop = try #require(value("TimeoutStopSec").flatMap { Int($0) })
        #expect(stop > (try Deployment.drain(service)))
        let port = try #require(value("Environment")?.split(separator: "="))
        let known = try Deployment.knownVariables()
        #expect(port.last == "%i" && known.contains(String(port[0])))
        #expect(Int(value("LimitNOFILE") ?? "") ?? 0 >= 65_536)
        for guardian in [
            "NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict", "ProtectHome=yes",
            "PrivateTmp=yes",
            "PrivateDevices=yes", "SystemCallFilter=@system-service", "MemoryDenyWriteExecute=yes", "UMask=0077",
        ] { #expect(lines.contains(guardian), "\(guardian)") }
    }

    @Test(
        "a crash writes a backtrace to the journal, with the options of the image",
        arguments: ["gateway", "dispatcher"])
    func backtrace(service: String) throws {
        let image = try House.text("deploy/docker/Dockerfile")
        let variable = try #require(image.firstMatch(of: #/SWIFT_BACKTRACE=\S+/#)).output
        #expect(try Self.lines(service).contains("Environment=\(variable)"))
    }

    @Test("the upgrade of docs/deploying.md restarts no unit after a failed migration")
    func upgrade() async throws {
        let page = try House.text("docs/deploying.md")
        let block = try #require(page.firstMatch(of: #/```sh\n(install -m 0755 bin[\s\S]*?)```/#)).output.1
        let (text, _) = try await House.run(
            """
            set +e
            install() { :; }
            systemd-run() { echo "migrated: ${*: -2}"; return 1; }
            systemctl() { echo "$*"; }
            timeout() { return 1; }
            journalctl() { :; }
            \(block)
            """,
            libraries: [])
        #expect(text == "migrated: /usr/local/bin/gateway migrate\n", "\(text)")
    }

    @Test("gateway and dispatcher accept the example's variables, except the placeholder of the secret")
    func environment() throws {
        let known = try Deployment.knownVariables()
        var all: [String: String] = [:]
        var set: [String: String] = [:]
        for line in try House.text("deploy/systemd/carillon.env.example").split(separator: "\n") {
            guard let (_, mark, name, value) = line.wholeMatch(of: #/(#?)([A-Z_]+)=(.*)/#)?.output else { continue }
            all[String(name)] = String(value)
            if mark.isEmpty { set[String(name)] = String(value) }
        }
        #expect(all.count > 10)
        #expect(Set(all.keys).subtracting(known).isEmpty)
        for service in ["gateway", "dispatcher"] {
            let faults = Deployment.faults(set, of: service)
            #expect(faults.count == 1 && faults.first?.hasPrefix("AUTH_JWT_SECRET ") == true, "\(service): \(faults)")
        }
        set["AUTH_JWT_SECRET"] = Deployment.secret
        all["AUTH_JWT_SECRET"] = Deployment.secret
        for service in ["gateway", "dispatcher"] { #expect(Deployment.faults(set, of: service) == []) }
        all.merge(["APNS_KEY_ID": "A", "APNS_TEAM_ID": "B", "APNS_TOPIC": "C"]) { $1 }
        for service in ["gateway", "dispatcher"] { #expect(Deployment.faults(all, of: service) == []) }
    }
}
