// Carillon · Conformance.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser
import Foundation
import Hummingbird
import HummingbirdCore
import Logging
import NIOCore
import NIOPosix
import ServiceLifecycle
import Sockets
import UnixSignals

/// Serves the gateway's protocols with the methods that common conformance tests expect.
@main
struct Conformance: AsyncParsableCommand {
    static let configuration = CommandConfiguration(commandName: "conformance")

    @Option(help: "Port to listen on; 0 for any free port.")
    var port = 0

    @Option(help: "Interval of pings in milliseconds.")
    var pingInterval = 15_000

    @Option(help: "Time for the answer to a ping in milliseconds.")
    var pingTimeout = 15_000

    @Option(help: "Largest message of a client in bytes.")
    var maxPayload = 32 * 1024

    @Flag(help: "Let clients recover their connection.")
    var recovery = false

    @Option(help: "Number of event loops; one serves requests of several connections in order.")
    var eventLoops = System.coreCount

    mutating func run() async throws {
        let logger = Logger(label: "carillon.conformance")
        let options = ConformanceOptions(
            pingInterval: self.pingInterval,
            pingTimeout: self.pingTimeout,
            maximumPayload: self.maxPayload,
            allowsRecovery: self.recovery
        )
        let endpoints: [any TransportEndpoint] = [
            EchoEndpoint(), ConformanceHub.endpoint(options), EngineIOEcho.endpoint(options),
            ConformanceSocketIO.endpoint(options),
        ]
        let app = Application(
            router: Router(),
            server: HTTPServerBuilder { responder in
                ConnectionChannel(
                    responder: responder,
                    endpoints: endpoints,
                    policy: Self.policy,
                    http: HTTP1Channel.Configuration()
                )
            },
            configuration: ApplicationConfiguration(address: .hostname("127.0.0.1", port: self.port)),
            onServerRunning: { channel in
                Self.say("ready http://127.0.0.1:\(channel.localAddress?.port ?? 0)")
            },
            eventLoopGroupProvider: .shared(
                MultiThreadedEventLoopGroup(numberOfThreads: max(1, self.eventLoops))
            ),
            logger: logger
        )
        var configuration = ServiceGroupConfiguration(
            services: [.init(service: app)],
            gracefulShutdownSignals: [.sigterm, .sigint],
            logger: logger
        )
        configuration.maximumGracefulShutdownDuration = .seconds(2)
        try await ServiceGroup(configuration: configuration).run()
    }

    /// Test suites may run in pages of any origin.
    private static var policy: ConnectionPolicy {
        var policy = ConnectionPolicy()
        policy.origins = .any
        return policy
    }

    private static func say(_ line: String) {
        print(line)
        fflush(nil)
    }
}
