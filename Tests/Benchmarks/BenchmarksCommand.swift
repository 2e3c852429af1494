// Carillon · BenchmarksCommand.swift
// SPDX-License-Identifier: Apache-2.0

import ArgumentParser

/// The program `benchmarks`; each command measures and prints lines of JSON.
///
/// `deploy/bench` starts the services and yardsticks that the commands need.
@main
struct BenchmarksCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "benchmarks",
        abstract: "Measures Carillon; started by deploy/bench.",
        subcommands: [
            RedisCommand.self, PersistCommand.self, TransferCommand.self, DeliveriesCommand.self, HangingCommand.self,
            WebPushCommand.self, MailCommand.self, IdleCommand.self, BacklogCommand.self, GrowthCommand.self,
            FloodCommand.self, SteadyCommand.self, SoakCommand.self, FanoutCommand.self, UnicastCommand.self,
            ConnectsCommand.self, ReconnectCommand.self, RestCommand.self, BroadcastCommand.self, CPUCommand.self,
            DueCommand.self, ScaleCommand.self, FloorCommand.self, BareSocketsCommand.self, BareRestCommand.self,
            ClusterCommand.self, SizingCommand.self,
        ]
    )
}
