// Carillon · DoctorReport.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Core

/// The result of one check, and the fix.
package struct Finding: Sendable, Equatable {
    /// The severity, the best first.
    package enum Outcome: String, Sendable, CaseIterable {
        case ok
        /// The check was not run.
        case skipped
        /// It works now, but may fail later or for some users.
        case warn
        /// It does not work, or it loses data.
        case fail
    }

    /// The subject, such as `redis persistence`.
    let check: String
    let outcome: Outcome
    /// The result; never a secret.
    let found: String
    /// The fix for the operator; nil if none is needed.
    let remedy: String?

    package init(_ outcome: Outcome, _ check: String, _ found: String, fix remedy: String? = nil) {
        self.check = check
        self.outcome = outcome
        self.found = found
        self.remedy = remedy
    }

    /// Returns a skipped finding for each of the checks.
    ///
    /// - Parameter need: the missing condition, such as `Redis`.
    static func skipped(_ checks: [String], needs need: String) -> [Finding] {
        checks.map { Finding(.skipped, $0, "needs \(need)") }
    }

    /// Returns the same finding about one of several servers.
    func about(_ server: String) -> Finding {
        Finding(self.outcome, self.check, "\(server): \(self.found)", fix: self.remedy)
    }
}

/// The findings of a doctor run.
package struct DoctorReport: Sendable {
    private(set) var findings: [Finding] = []
    /// Whether the settings are faulty.
    private var isConfigurationFaulty = false

    package mutating func add(_ findings: [Finding]) { self.findings += findings }

    package mutating func add(_ finding: Finding) { self.findings.append(finding) }

    /// Adds the findings for faulty and misspelt settings, or one that all are valid.
    mutating func add(settingsFaults faults: [String], misspellings: [(name: String, meant: String)] = []) {
        for (name, meant) in misspellings {
            self.add(
                Finding(
                    .warn, "settings", "\(name) is not a setting; did you mean \(meant)?",
                    fix: "correct the name in the file of --config, or remove it"))
        }
        for fault in faults {
            self.add(
                Finding(
                    .fail, "settings", fault, fix: "set or correct it in the environment or in the file of --config"))
        }
        self.isConfigurationFaulty = self.isConfigurationFaulty || !faults.isEmpty
        if faults.isEmpty, misspellings.isEmpty { self.add(Finding(.ok, "settings", "complete and valid")) }
    }

    /// 78 if the settings are faulty, 1 if another check fails, otherwise nil.
    var exitCode: ExitCode? {
        if self.isConfigurationFaulty { return ExitStatus.configuration }
        return self.findings.contains { $0.outcome == .fail } ? ExitStatus.no : nil
    }

    /// Returns the report for people.
    func lines(style: Style) -> [String] {
        let width = self.findings.reduce(0) { max($0, DisplayText.width($1.check)) }
        var lines: [String] = []
        for finding in self.findings {
            let word = finding.outcome.rawValue.padded(to: 8)
            let check = finding.check.padded(to: width + 2)
            lines.append(style(word, Self.tint(finding.outcome)) + check + DisplayText.line(finding.found))
            if let remedy = finding.remedy, finding.outcome != .ok {
                lines.append("".padded(to: 8) + style("→ " + DisplayText.line(remedy), .bold))
            }
        }
        let counts = Finding.Outcome.allCases.map { outcome in
            "\(self.findings.count { $0.outcome == outcome }) \(outcome.rawValue)"
        }
        return lines + ["", counts.joined(separator: ", ")]
    }

    /// Prints the report.
    ///
    /// - Throws: ``exitCode``, unless it is nil.
    package func end(_ output: OutputOptions) throws {
        if output.json {
            Terminal.object { writer in
                let worst = self.findings.map(\.outcome).max { Self.badness($0) < Self.badness($1) } ?? .ok
                writer.member("outcome", (worst == .skipped ? .ok : worst).rawValue)
                writer.array("checks", self.findings) { writer, finding in
                    writer.beginObject()
                    writer.member("check", finding.check)
                    writer.member("outcome", finding.outcome.rawValue)
                    writer.member("found", finding.found)
                    writer.member("remedy", finding.remedy)
                    writer.endObject()
                }
            }
        } else {
            for line in self.lines(style: .output) { Terminal.line(line) }
        }
        if let exitCode { throw exitCode }
    }

    private static func badness(_ outcome: Finding.Outcome) -> Int {
        Finding.Outcome.allCases.firstIndex(of: outcome) ?? 0
    }

    private static func tint(_ outcome: Finding.Outcome) -> Style.Tint {
        switch outcome {
        case .ok: .green
        case .skipped: .faint
        case .warn: .yellow
        case .fail: .red
        }
    }
}

extension String {
    fileprivate func padded(to width: Int) -> String {
        self + String(repeating: " ", count: max(0, width - DisplayText.width(self)))
    }
}
