// Carillon · SandboxCredentials.swift
// SPDX-License-Identifier: Apache-2.0

import Crypto
import Foundation
import Glibc
import NIOPosix
import Synchronization
import _CryptoExtras

/// The keys and certificates of a sandbox, in files that clients read.
struct SandboxCredentials: Sendable {
    enum File: String, CaseIterable {
        case authority = "ca.pem"
        case serverCertificate = "server.pem"
        case serverKey = "server.key"
        case serviceAccount = "service-account.json"
        case otherServiceAccount = "other-service-account.json"
        case apnsKey = "apns.p8"
        case apns = "apns.json"
        case vapidKey = "vapid.pem"
    }

    /// A service account, as the token endpoint knows it.
    struct Account: Sendable {
        let projectID: String
        let clientEmail: String
        let privateKeyID: String
        let publicKey: _RSA.Signing.PublicKey
    }

    /// The provider, as APNs knows it.
    struct Provider: Sendable {
        let keyID: String
        let teamID: String
        let publicKey: P256.Signing.PublicKey
    }

    private struct ServiceAccountFile: Codable {
        var type = "service_account"
        var project_id: String
        var private_key_id = ""
        var private_key = ""
        var client_email: String
        var client_id = "100000000000000000001"
        var auth_uri = "https://accounts.google.com/o/oauth2/auth"
        var token_uri = ""
    }

    private struct ProviderFile: Codable {
        var key_id = ""
        var team_id = "CARILLON01"
    }

    let account: Account
    /// The service account of the second project; nil if there is none.
    let otherAccount: Account?
    let apns: Provider
    /// The public half of the key in `vapid.pem`: 65 bytes.
    let applicationServerKey: [UInt8]
    private let directory: URL

    /// The accounts of all projects.
    var accounts: [Account] { [self.account, self.otherAccount].compactMap(\.self) }

    /// Reads the files in the directory; creates them first if any is missing.
    static func prepare(in directory: URL, otherProject: String? = nil) async throws -> SandboxCredentials {
        // Not on the cooperative pool, because this waits for a lock and for processes.
        try await NIOThreadPool.singleton.runIfActive {
            try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
            try Self.locked(directory) {
                let isComplete = File.allCases.allSatisfy {
                    $0 == .otherServiceAccount
                        || FileManager.default.fileExists(atPath: directory.appendingPathComponent($0.rawValue).path)
                }
                if !isComplete { try Self.make(in: directory) }
                if let otherProject { try Self.makeAccount(otherProject, .otherServiceAccount, in: directory) }
            }
            return try SandboxCredentials(directory: directory, hasOther: otherProject != nil)
        }
    }

    /// The files of temporary directories, once they were created.
    private static let temporaryFiles = Mutex<[File: Data]>([:])

    /// Writes the same credentials into each temporary directory of this process, because creating
    /// them takes half a second.
    static func fill(_ directory: URL) async throws {
        try await NIOThreadPool.singleton.runIfActive {
            try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
            try Self.temporaryFiles.withLock { files in
                if files.isEmpty {
                    try Self.make(in: directory)
                    for file in File.allCases where file != .otherServiceAccount {
                        files[file] = try Data(contentsOf: directory.appendingPathComponent(file.rawValue))
                    }
                }
                for (file, content) in files {
                    let place = directory.appendingPathComponent(file.rawValue)
                    try content.write(to: place)
                    try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: place.path)
                }
            }
        }
    }

    private init(directory: URL, hasOther: Bool) throws {
        self.directory = directory
        do {
            self.account = try Self.account(.serviceAccount, in: directory)
            self.otherAccount = try hasOther ? Self.account(.otherServiceAccount, in: directory) : nil
            let provider = try Self.read(ProviderFile.self, .apns, in: directory)
            let key = try String(contentsOf: directory.appendingPathComponent(File.apnsKey.rawValue), encoding: .utf8)
            self.apns = Provider(
                keyID: provider.key_id, teamID: provider.team_id,
                publicKey: try P256.Signing.PrivateKey(pemRepresentation: key).publicKey)
            let vapid = try String(
                contentsOf: directory.appendingPathComponent(File.vapidKey.rawValue), encoding: .utf8)
            let publicKey = try P256.Signing.PrivateKey(pemRepresentation: vapid).publicKey
            self.applicationServerKey = Array(publicKey.x963Representation)
        } catch {
            throw SandboxError(.credentials, "cannot read the keys in \(directory.path); delete it to create new ones")
        }
    }

    func path(of file: File) -> String {
        self.directory.appendingPathComponent(file.rawValue).path
    }

    /// Writes the URL of the sandbox's token endpoint into the service accounts.
    func writeServiceAccounts(tokenURI: String) throws {
        var files = [File.serviceAccount]
        if self.otherAccount != nil { files.append(.otherServiceAccount) }
        for file in files {
            var account = try Self.read(ServiceAccountFile.self, file, in: self.directory)
            guard account.token_uri != tokenURI else { continue }
            account.token_uri = tokenURI
            try Self.write(account, file, in: self.directory)
        }
    }

    private static func account(_ file: File, in directory: URL) throws -> Account {
        let account = try Self.read(ServiceAccountFile.self, file, in: directory)
        return Account(
            projectID: account.project_id, clientEmail: account.client_email, privateKeyID: account.private_key_id,
            publicKey: try _RSA.Signing.PrivateKey(pemRepresentation: account.private_key).publicKey)
    }

    /// Runs `body` with the directory's lock file held, so that sandboxes do not initialise it at
    /// the same time.
    private static func locked(_ directory: URL, _ body: () throws -> Void) throws {
        let lock = open(directory.appendingPathComponent(".lock").path, O_CREAT | O_RDWR | O_CLOEXEC, 0o600)
        guard lock >= 0 else { throw SandboxError(.credentials, "cannot write to \(directory.path)") }
        defer { close(lock) }
        flock(lock, LOCK_EX)
        try body()
    }

    private static func make(in directory: URL) throws {
        let openssl = OpenSSLTool(directory: directory)
        let elliptic = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650"]
        try openssl(
            ["req", "-x509"] + elliptic + [
                "-keyout", "ca.key", "-out", File.authority.rawValue, "-subj", "/CN=Provider sandbox CA",
                "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            ])
        try openssl(
            ["req", "-x509", "-CA", File.authority.rawValue, "-CAkey", "ca.key"] + elliptic + [
                "-keyout", File.serverKey.rawValue, "-out", File.serverCertificate.rawValue, "-subj", "/CN=localhost",
                "-addext", "basicConstraints=critical,CA:FALSE", "-addext", "keyUsage=critical,digitalSignature",
                "-addext", "extendedKeyUsage=serverAuth", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            ])
        try FileManager.default.removeItem(at: directory.appendingPathComponent("ca.key"))
        for file in [File.apnsKey, .vapidKey] {
            try openssl(
                ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", file.rawValue])
        }
        try Self.makeAccount("carillon-sandbox", .serviceAccount, in: directory)
        try Self.write(
            ProviderFile(key_id: Self.randomName(10, of: "ABCDEFGHJKLMNPQRSTUVWXYZ23456789")), .apns, in: directory)
    }

    /// Creates a project's service account with its own key.
    private static func makeAccount(_ project: String, _ file: File, in directory: URL) throws {
        try OpenSSLTool(directory: directory)(
            ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "account.key"])
        let key = directory.appendingPathComponent("account.key")
        let account = ServiceAccountFile(
            project_id: project, private_key_id: Self.randomName(40, of: "0123456789abcdef"),
            private_key: try String(contentsOf: key, encoding: .utf8),
            client_email: "dispatcher@\(project).iam.gserviceaccount.com")
        try FileManager.default.removeItem(at: key)
        try Self.write(account, file, in: directory)
    }

    private static func randomName(_ length: Int, of alphabet: String) -> String {
        String((0..<length).compactMap { _ in alphabet.randomElement() })
    }

    private static func read<Content: Decodable>(
        _ type: Content.Type, _ file: File, in directory: URL
    ) throws -> Content {
        try JSONDecoder().decode(type, from: Data(contentsOf: directory.appendingPathComponent(file.rawValue)))
    }

    private static func write(_ content: some Encodable, _ file: File, in directory: URL) throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        let place = directory.appendingPathComponent(file.rawValue)
        try encoder.encode(content).write(to: place, options: .atomic)
        try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: place.path)
    }
}

/// Runs the `openssl` program in a directory.
///
/// Blocks in `waitpid`. Foundation's `Process` reports the exit on another thread of the same pool
/// and deadlocks when all its threads start one at once.
struct OpenSSLTool {
    let directory: URL

    func callAsFunction(_ arguments: [String]) throws {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for descriptor in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] {
            posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0)
        }
        // `posix_spawnp` reads these copies only during the call.
        var words: [UnsafeMutablePointer<CChar>?] = (["env", "-C", self.directory.path, "openssl"] + arguments)
            .map { strdup($0) }
        var variables: [UnsafeMutablePointer<CChar>?] = ProcessInfo.processInfo.environment.map {
            strdup("\($0.key)=\($0.value)")
        }
        defer { for word in words + variables { free(word) } }
        words.append(nil)
        variables.append(nil)
        var identifier = pid_t()
        guard posix_spawnp(&identifier, "env", &actions, nil, words, variables) == 0 else {
            throw SandboxError(.openssl, "cannot start openssl; install it")
        }
        var status: CInt = 0
        while waitpid(identifier, &status, 0) < 0, errno == EINTR {}
        guard status == 0 else {
            throw SandboxError(.openssl, "openssl \(arguments.first ?? "") failed with status \(status)")
        }
    }
}

/// A reason why a sandbox cannot start.
package struct SandboxError: Error, CustomStringConvertible {
    package enum Code: String, Sendable {
        /// `openssl` is not installed or failed.
        case openssl
        /// A file in the directory cannot be read, written or parsed.
        case credentials
    }

    package let code: Code
    /// The failure in words; may name files but never holds their contents.
    package let message: String
    /// File and line of the failure.
    package let place: String

    init(_ code: Code, _ message: String, file: String = #fileID, line: Int = #line) {
        self.code = code
        self.message = message
        self.place = "\(file):\(line)"
    }

    package var description: String { "provider sandbox: \(self.code), \(self.message), at \(self.place)" }
}
