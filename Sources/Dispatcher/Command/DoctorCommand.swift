// Carillon · DoctorCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Clients
import Core
import Logging
import Operations
import Pipeline
import Providers
import Storage

/// `dispatcher doctor`.
struct DoctorCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor",
        abstract: "Checks what breaks in practice and tells you how to fix it.",
        discussion: """
            Checks the settings, the catalog, Redis (version, eviction, persistence,
            memory), PostgreSQL (version, migrations, connections), the clocks of all
            three, limits of the machine, time-zone data, credentials and who may read
            them, whether running dispatchers have the same providers, and whether the
            providers can be reached. Changes nothing and sends nothing. Exits with 1 if
            anything fails, with 78 if the settings are faulty.

            Examples:
              dispatcher doctor
              dispatcher doctor --config /etc/carillon/dispatcher.env --offline
              dispatcher doctor --json | jq '.checks[] | select(.outcome != "ok")'
            """
    )

    @OptionGroup var options: CommonOptions
    @OptionGroup var output: OutputOptions

    @Flag(help: "Skips providers and the mail relay.")
    var offline = false

    func run() async throws {
        try await DispatcherCommand.run {
            let reader = try self.options.reader()
            let settings = DispatcherSettings(reader)
            var report = await Examination.program(
                .dispatcher, reader, settings.common,
                // Also three for broadcasts, and two to relay the outbox.
                needed: settings.common.databaseConnections + BroadcastService.chains + 3)
            if let finding = Examination.authorities("PROVIDER_CA", path: settings.providerCertificateAuthority) {
                report.add(finding)
            }
            report.add(await self.outboxes(settings))
            report.add(try await self.providers(settings))
            if let url = settings.publicURL {
                report.add(
                    settings.linkSecret == nil
                        ? Finding(
                            .warn, "unsubscribe links",
                            "PUBLIC_URL is set without a valid AUTH_JWT_SECRET: mail has no links",
                            fix: "give the dispatcher the gateway's AUTH_JWT_SECRET")
                        : Finding(.ok, "unsubscribe links", "lead to \(url)"))
            }
            try report.end(self.output)
        }
    }

    /// Examines the other databases whose outbox is relayed.
    private func outboxes(_ settings: DispatcherSettings) async -> [Finding] {
        var findings: [Finding] = []
        for (index, url) in settings.outboxDatabases.enumerated() {
            let check = "outbox \(index + 1)"
            var configuration = PostgresConfiguration(connectionString: url, applicationName: "carillon-doctor")
            configuration.connections = 1
            configuration.timeout = .seconds(5)
            do {
                let found = try await CommandClients.withDatabase(configuration) { pool in
                    let row = try await pool.query(Self.outboxPrivileges).first
                    return try row.map { (role: try $0.text(0), missing: try $0.text(1)) }
                }
                if let found, found.missing.isEmpty {
                    findings.append(Finding(.ok, check, "installed"))
                } else if let found {
                    findings.append(
                        Finding(
                            .fail, check, "role \(found.role) lacks \(found.missing)",
                            fix: "GRANT USAGE ON SCHEMA carillon TO \(found.role); "
                                + "GRANT SELECT, DELETE ON carillon.outbox TO \(found.role); "
                                + "GRANT SELECT ON carillon.outbox_database TO \(found.role)"))
                } else {
                    findings.append(
                        Finding(
                            .fail, check, "that database has no outbox",
                            fix: "dispatcher outbox-sql | psql -v ON_ERROR_STOP=1 URL"))
                }
            } catch {
                findings.append(
                    Finding(.fail, check, "\(error)", fix: "correct OUTBOX_DATABASE_URLS, or start that PostgreSQL"))
            }
        }
        return findings
    }

    /// The role and the privileges that it lacks to relay the outbox; no row without an outbox.
    private static let outboxPrivileges = """
        SELECT quote_ident(current_user), concat_ws(', ',
            CASE WHEN NOT has_schema_privilege(n.oid, 'USAGE') THEN 'USAGE on schema carillon' END,
            CASE WHEN NOT has_table_privilege(o.oid, 'SELECT') THEN 'SELECT on carillon.outbox' END,
            CASE WHEN NOT has_table_privilege(o.oid, 'DELETE') THEN 'DELETE on carillon.outbox' END,
            CASE WHEN NOT has_table_privilege(d.oid, 'SELECT') THEN 'SELECT on carillon.outbox_database' END)
        FROM pg_namespace n
        JOIN pg_class o ON o.relnamespace = n.oid AND o.relname = 'outbox'
        JOIN pg_class d ON d.relnamespace = n.oid AND d.relname = 'outbox_database'
        WHERE n.nspname = 'carillon'
        """

    /// Examines credentials, their files, and the providers that they open.
    private func providers(_ settings: DispatcherSettings) async throws -> [Finding] {
        // A finding reports what cannot be reached.
        let logger = Logger(label: "carillon.doctor") { _ in SwiftLogNoOpLogHandler() }
        let transfers = DispatcherComposition.transfers(settings, logger: logger)
        let apps = DispatcherComposition.apps(
            settings, transfers: transfers, now: Timestamp.now, logger: logger)
        var findings: [Finding] = []
        let entries = await apps.make { name, reason in
            findings.append(
                Finding(.fail, "credentials", "\(name) cannot be used: \(reason)", fix: "docs/providers.md"))
        }
        if entries.isEmpty, findings.isEmpty {
            findings.append(
                Finding(
                    .warn, "credentials", "no provider is configured: only open sockets are reached",
                    fix: "set FCM_CREDENTIALS, APNS_KEY, VAPID_KEY or SMTP_URL; docs/providers.md"))
        }
        if let finding = await self.fleet(settings.common.redis, entries) { findings.append(finding) }
        for entry in entries {
            let name = "\(entry.channel.provider.rawValue) of app \(entry.channel.app)"
            findings.append(Finding(.ok, "credentials", name))
            guard !self.offline else {
                findings.append(Finding(.skipped, "provider", "\(name): skipped by --offline"))
                continue
            }
            for probe in await entry.channel.probe() {
                findings.append(ProviderFinding.make(name, probe))
            }
        }
        let files = [self.options.config].compactMap(\.self) + apps.files
        findings += files.compactMap { FileFacts(path: $0).finding }
        await transfers.shutdown()
        return findings
    }
}

extension DoctorCommand {
    /// Compares the providers and apps with those of the running dispatchers; nil if none runs.
    private func fleet(_ settings: RedisSettings, _ entries: [ChannelDirectory.Entry]) async -> Finding? {
        var configuration = settings.configuration(clientName: "carillon-doctor")
        configuration.connectTimeout = .seconds(5)
        configuration.commandTimeout = .seconds(5)
        let report = try? await CommandClients.withRedis(configuration) { connection in
            try await Live(connection).providerBoard.report(now: Timestamp.now(), removesStale: false)
        }
        // Another finding says why Redis does not answer.
        guard let report, !report.dispatchers.isEmpty else { return nil }
        func way(_ provider: Provider, _ app: String) -> String { "\(provider.rawValue) of app \(app)" }
        var fleet: [String: Set<String>] = [:]
        for name in report.dispatchers { fleet[name] = [] }
        for state in report.states { fleet[state.dispatcher, default: []].insert(way(state.provider, state.app)) }
        fleet["these settings"] = Set(entries.map { way($0.channel.provider, $0.channel.app) })
        let all = fleet.values.reduce(into: Set<String>()) { $0.formUnion($1) }
        let gaps = fleet.sorted { $0.key < $1.key }.compactMap { name, ways -> String? in
            ways == all ? nil : "\(name): no \(all.subtracting(ways).sorted().joined(separator: ", "))"
        }
        guard !gaps.isEmpty else { return Finding(.ok, "dispatchers", "all have these providers and apps") }
        return Finding(
            .warn, "dispatchers", "providers and apps differ: \(gaps.joined(separator: "; "))",
            fix: "give all dispatchers the same providers and APPS; docs/providers.md")
    }
}

/// The finding of a provider's probe.
enum ProviderFinding {
    static func make(_ name: String, _ probe: ProviderProbe) -> Finding {
        guard let fault = probe.fault else { return Finding(.ok, "provider", "\(name): \(probe.subject)") }
        let remedy =
            switch fault {
            case "resolve": "look at the name, and at this machine's DNS"
            case "connect", "timeout": "let this machine connect there: firewall, route, proxy"
            case "tls": "PROVIDER_CA must hold the authority that signed its certificate; look at the clock"
            default: "look at the credential and at the provider's console; docs/providers.md"
            }
        return Finding(.fail, "provider", "\(name): \(probe.subject): \(fault)", fix: remedy)
    }
}
