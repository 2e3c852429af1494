// Carillon · TestCertificate.swift
// SPDX-License-Identifier: Apache-2.0

/// A test certificate authority and a certificate that it signed for `localhost` and 127.0.0.1.
package final class TestCertificate: Sendable {
    private let directory: TemporaryDirectory

    /// The authority's certificate, as PEM.
    package var authorityFile: String { self.directory.file("ca.pem") }
    package var certificateFile: String { self.directory.file("server.pem") }
    package var keyFile: String { self.directory.file("server.key") }

    private init(_ directory: TemporaryDirectory) {
        self.directory = directory
    }

    /// Creates both with the `openssl` program.
    package static func make() async throws -> TestCertificate {
        let certificate = TestCertificate(try TemporaryDirectory("certificate"))
        let authorityKey = certificate.directory.file("ca.key")
        let fresh = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        try await certificate.openssl(
            fresh + [
                "-keyout", authorityKey, "-out", certificate.authorityFile, "-subj", "/CN=Test authority",
                "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign",
            ])
        try await certificate.openssl(
            fresh + [
                "-CA", certificate.authorityFile, "-CAkey", authorityKey, "-keyout", certificate.keyFile,
                "-out", certificate.certificateFile, "-subj", "/CN=localhost",
                "-addext", "basicConstraints=critical,CA:FALSE",
                "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            ])
        return certificate
    }

    private func openssl(_ arguments: [String]) async throws {
        try await ChildProcess.run("openssl", arguments, directory: self.directory.path)
    }
}
